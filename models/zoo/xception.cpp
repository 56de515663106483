// Chollet 2017, as in tf.keras.applications.
#include <fmt/core.h>

#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/merge.h"
#include "models/layers/normalization.h"
#include "models/layers/pooling.h"
#include "models/layers/separable.h"
#include "models/zoo/zoo.h"

namespace rondo::zoo {
namespace {

// Keras' name of the k-th layer that was not given one.
std::string numbered(const char* base, int k) {
  return k == 0 ? base : fmt::format("{}_{}", base, k);
}

class Builder {
 public:
  explicit Builder(int block) : block_(fmt::format("block{}", block)) {}

  SymbolicTensor conv(const SymbolicTensor& x, int k, int64_t filters, int64_t stride) const {
    const std::string name = fmt::format("{}_conv{}", block_, k);
    auto y = layers::Conv2D{.filters = filters,
                            .kernel_size = {3, 3},
                            .strides = {stride, stride},
                            .use_bias = false,
                            .name = name}(x);
    y = layers::BatchNormalization{.name = name + "_bn"}(y);
    return layers::Activation{.activation = "relu", .name = name + "_act"}(y);
  }
  SymbolicTensor act(const SymbolicTensor& x, int k) const {
    return layers::Activation{.activation = "relu", .name = fmt::format("{}_sepconv{}_act", block_, k)}(x);
  }
  SymbolicTensor separable(const SymbolicTensor& x, int k, int64_t filters) const {
    const std::string name = fmt::format("{}_sepconv{}", block_, k);
    const auto y = layers::SeparableConv2D{
        .filters = filters, .kernel_size = {3, 3}, .padding = "same", .use_bias = false, .name = name}(x);
    return layers::BatchNormalization{.name = name + "_bn"}(y);
  }
  SymbolicTensor pool(const SymbolicTensor& x) const {
    return layers::MaxPooling2D{
        .pool_size = {3, 3}, .strides = {2, 2}, .padding = "same", .name = block_ + "_pool"}(x);
  }

 private:
  std::string block_;
};

// The k-th shortcut around a block that halves the image.
SymbolicTensor shortcut(const SymbolicTensor& x, int k, int64_t filters) {
  const auto y = layers::Conv2D{.filters = filters,
                                .strides = {2, 2},
                                .padding = "same",
                                .use_bias = false,
                                .name = numbered("conv2d", k)}(x);
  return layers::BatchNormalization{.name = numbered("batch_normalization", k)}(y);
}

SymbolicTensor join(const SymbolicTensor& a, const SymbolicTensor& b, int k) {
  return layers::Add{.name = numbered("add", k)}({a, b});
}

// Blocks 2, 3, 4 and 13.
SymbolicTensor halving(const SymbolicTensor& x, int block, int k, int64_t first, int64_t second) {
  const Builder b(block);
  const SymbolicTensor around = shortcut(x, k, second);
  auto y = block == 2 ? x : b.act(x, 1);
  y = b.separable(y, 1, first);
  y = b.separable(b.act(y, 2), 2, second);
  return join(b.pool(y), around, block == 13 ? 11 : k);
}

}  // namespace

Model xception(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  const SymbolicTensor image = layers::Input({.shape = input_shape});
  const Builder entry(1);
  auto x = entry.conv(image, 1, 32, 2);
  x = entry.conv(x, 2, 64, 1);
  x = halving(x, 2, 0, 128, 128);
  x = halving(x, 3, 1, 256, 256);
  x = halving(x, 4, 2, 728, 728);
  for (int block = 5; block <= 12; ++block) {
    const Builder b(block);
    auto y = x;
    for (int k = 1; k <= 3; ++k) y = b.separable(b.act(y, k), k, 728);
    x = join(y, x, block - 2);
  }
  x = halving(x, 13, 3, 728, 1024);
  const Builder last(14);
  x = last.act(last.separable(x, 1, 1536), 1);
  x = last.act(last.separable(x, 2, 2048), 2);
  x = layers::GlobalAveragePooling2D{.name = "avg_pool"}(x);
  x = layers::Dense{.units = classes, .activation = "softmax", .name = "predictions"}(x);
  return Model({image}, {x}, options);
}

}  // namespace rondo::zoo
