// The models that come with Rondo. Each ends in softmax over `classes`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace rondo::zoo {

struct MlpOptions {
  float dropout = 0.0f;  // behind both hidden layers; 0: none
  ModelOptions model = {.name = "mlp"};
};

// flatten - dense 512 relu - dense 512 relu - dense. For 28 x 28 images and 10 classes: 669,706 parameters.
Model mlp(const Shape& input_shape, int64_t classes, const MlpOptions& options = {});

// Keras' MNIST example: conv 32 3x3 relu - conv 64 3x3 relu - max-pool 2 - dropout .25 - flatten - dense 128
// relu - dropout .5 - dense. For 28 x 28 x 1: 1,199,882 parameters.
Model cnn(const Shape& input_shape, int64_t classes, const ModelOptions& options = {.name = "cnn"});

// LeCun et al. 1998, with full connections and softmax: conv 6 5x5 same tanh - average-pool 2 - conv 16 5x5
// tanh - average-pool 2 - dense 120 tanh - dense 84 tanh - dense. For 28 x 28 x 1: 61,706 parameters.
Model lenet5(const Shape& input_shape, int64_t classes, const ModelOptions& options = {.name = "lenet5"});

std::vector<std::string> names();
// By name, with the seed of the initial weights. Throws InvalidArgument that lists the names.
Model make(std::string_view name, const Shape& input_shape, int64_t classes, uint64_t seed = 0);

}  // namespace rondo::zoo
