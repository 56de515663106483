// He et al. 2015, as in tf.keras.applications: the stride is in the first 1 x 1 convolution of a block.
#include <fmt/core.h>

#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/merge.h"
#include "models/layers/normalization.h"
#include "models/layers/padding.h"
#include "models/layers/pooling.h"
#include "models/zoo/zoo.h"

namespace rondo::zoo {
namespace {

constexpr float kEpsilon = 1.001e-5f;

struct Window {
  int64_t size = 1;
  int64_t stride = 1;
  std::string padding = "valid";
};

SymbolicTensor conv(const SymbolicTensor& x, int64_t filters, const Window& window, const std::string& name) {
  const auto y = layers::Conv2D{.filters = filters,
                                .kernel_size = {window.size, window.size},
                                .strides = {window.stride, window.stride},
                                .padding = window.padding,
                                .name = name + "_conv"}(x);
  return layers::BatchNormalization{.epsilon = kEpsilon, .name = name + "_bn"}(y);
}

SymbolicTensor relu(const SymbolicTensor& x, const std::string& name) {
  return layers::Activation{.activation = "relu", .name = name}(x);
}

// The first block of a stage changes the extents: its shortcut has a convolution of its own.
SymbolicTensor block(const SymbolicTensor& x, int64_t filters, int64_t stride, bool first,
                     const std::string& name) {
  const SymbolicTensor shortcut = first ? conv(x, 4 * filters, {.stride = stride}, name + "_0") : x;
  auto y = relu(conv(x, filters, {.stride = stride}, name + "_1"), name + "_1_relu");
  y = relu(conv(y, filters, {.size = 3, .padding = "same"}, name + "_2"), name + "_2_relu");
  y = conv(y, 4 * filters, {}, name + "_3");
  return relu(layers::Add{.name = name + "_add"}({shortcut, y}), name + "_out");
}

}  // namespace

Model resnet50(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  const SymbolicTensor image = layers::Input({.shape = input_shape});
  auto x = layers::ZeroPadding2D{.padding = {{{3, 3}, {3, 3}}}, .name = "conv1_pad"}(image);
  x = relu(conv(x, 64, {.size = 7, .stride = 2}, "conv1"), "conv1_relu");
  x = layers::ZeroPadding2D{.name = "pool1_pad"}(x);
  x = layers::MaxPooling2D{.pool_size = {3, 3}, .strides = {2, 2}, .name = "pool1_pool"}(x);
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    for (int k = 0; k < blocks[stage]; ++k) {
      const int64_t stride = stage > 0 && k == 0 ? 2 : 1;
      x = block(x, int64_t{64} << stage, stride, k == 0, fmt::format("conv{}_block{}", stage + 2, k + 1));
    }
  }
  x = layers::GlobalAveragePooling2D{.name = "avg_pool"}(x);
  x = layers::Dense{.units = classes, .activation = "softmax", .name = "predictions"}(x);
  return Model({image}, {x}, options);
}

}  // namespace rondo::zoo
