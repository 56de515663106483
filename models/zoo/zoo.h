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

// The image models of Keras' applications, with its names of layers (tf.keras 2.x) and its numbers of
// parameters; `input_shape` is (height, width, 3). Multiply-adds of one image, forward, of convolutions and
// dense layers, with 1000 classes:
//
//   model          input   smallest   parameters   of them trained   multiply-adds
//   xception       299     71         22,910,480   22,855,952         8,357,403,496
//   resnet50       224     32         25,636,712   25,583,592         3,857,973,248
//   vgg16          224     32        138,357,544   138,357,544       15,470,264,320
//   mobilenet      224     32          4,253,864    4,231,976           568,740,352
//   inception_v3   299     75         23,851,784   23,817,352         5,713,216,096
Model xception(const Shape& input_shape = {299, 299, 3}, int64_t classes = 1000,
               const ModelOptions& options = {.name = "xception"});
Model resnet50(const Shape& input_shape = {224, 224, 3}, int64_t classes = 1000,
               const ModelOptions& options = {.name = "resnet50"});
Model vgg16(const Shape& input_shape = {224, 224, 3}, int64_t classes = 1000,
            const ModelOptions& options = {.name = "vgg16"});
// With a width (alpha) of 1.
Model mobilenet(const Shape& input_shape = {224, 224, 3}, int64_t classes = 1000,
                const ModelOptions& options = {.name = "mobilenet_1.00_224"});
Model inception_v3(const Shape& input_shape = {299, 299, 3}, int64_t classes = 1000,
                   const ModelOptions& options = {.name = "inception_v3"});

// Sequence models over the rows of images (time, features[, 1]), so that they train on the same data.
//
// dense 64 - 2 encoder blocks - layer normalization - flatten - dense. A block (Xiong et al. 2020): x +
// attention(normalized x) with 4 heads of 16, x + dense 64 (dense 128 gelu (normalized x)), dropout behind
// both. For 28 x 28: 86,858 parameters.
Model transformer(const Shape& input_shape = {28, 28, 1}, int64_t classes = 10,
                  const ModelOptions& options = {.name = "transformer"});
// LSTM 128 - dense. For 28 x 28: 81,674 parameters.
Model lstm_classifier(const Shape& input_shape = {28, 28, 1}, int64_t classes = 10,
                      const ModelOptions& options = {.name = "lstm_classifier"});

// What a model was made for: its input and number of classes where nothing else is asked for.
struct Preset {
  Shape input_shape;
  int64_t classes = 0;
};

std::vector<std::string> names();
// Throws InvalidArgument that lists the names.
Preset preset(std::string_view name);
// By name, with the seed of the initial weights. Throws InvalidArgument that lists the names.
Model make(std::string_view name, const Shape& input_shape, int64_t classes, uint64_t seed = 0);

}  // namespace rondo::zoo
