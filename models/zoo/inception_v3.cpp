// Szegedy et al. 2015, as in Keras' applications.
#include <fmt/core.h>

#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/merge.h"
#include "models/layers/normalization.h"
#include "models/layers/pooling.h"
#include "models/zoo/zoo.h"

namespace rondo::zoo {
namespace {

class Builder {
 public:
  // Convolution, batch normalization without scale, relu. Keras numbers these layers in the order in which
  // they are made.
  SymbolicTensor conv(const SymbolicTensor& x, int64_t filters, std::array<int64_t, 2> size,
                      int64_t stride = 1, const char* padding = "same") {
    const std::string suffix = convs_ == 0 ? "" : fmt::format("_{}", convs_);
    ++convs_;
    auto y = layers::Conv2D{.filters = filters,
                            .kernel_size = size,
                            .strides = {stride, stride},
                            .padding = padding,
                            .use_bias = false,
                            .name = "conv2d" + suffix}(x);
    y = layers::BatchNormalization{.scale = false, .name = "batch_normalization" + suffix}(y);
    return layers::Activation{.activation = "relu", .name = "activation" + suffix}(y);
  }
  SymbolicTensor average(const SymbolicTensor& x) {
    return layers::AveragePooling2D{.pool_size = {3, 3},
                                    .strides = {1, 1},
                                    .padding = "same",
                                    .name = numbered("average_pooling2d", averages_++)}(x);
  }
  SymbolicTensor maximum(const SymbolicTensor& x) {
    return layers::MaxPooling2D{
        .pool_size = {3, 3}, .strides = {2, 2}, .name = numbered("max_pooling2d", maxima_++)}(x);
  }
  SymbolicTensor join(const std::vector<SymbolicTensor>& parts) {
    return layers::Concatenate{.name = numbered("concatenate", joins_++)}(parts);
  }

 private:
  static std::string numbered(const char* base, int k) {
    return k == 0 ? base : fmt::format("{}_{}", base, k);
  }
  int convs_ = 0, averages_ = 0, maxima_ = 0, joins_ = 0;
};

SymbolicTensor mixed(int k, const std::vector<SymbolicTensor>& branches) {
  return layers::Concatenate{.name = fmt::format("mixed{}", k)}(branches);
}

SymbolicTensor stem(Builder& b, const SymbolicTensor& image) {
  auto x = b.conv(image, 32, {3, 3}, 2, "valid");
  x = b.conv(x, 32, {3, 3}, 1, "valid");
  x = b.maximum(b.conv(x, 64, {3, 3}));
  x = b.conv(x, 80, {1, 1}, 1, "valid");
  return b.maximum(b.conv(x, 192, {3, 3}, 1, "valid"));
}

// mixed0 to mixed2.
SymbolicTensor wide(Builder& b, const SymbolicTensor& x, int k) {
  const auto one = b.conv(x, 64, {1, 1});
  const auto five = b.conv(b.conv(x, 48, {1, 1}), 64, {5, 5});
  const auto three = b.conv(b.conv(b.conv(x, 64, {1, 1}), 96, {3, 3}), 96, {3, 3});
  const auto pool = b.conv(b.average(x), k == 0 ? 32 : 64, {1, 1});
  return mixed(k, {one, five, three, pool});
}

SymbolicTensor first_reduction(Builder& b, const SymbolicTensor& x) {
  const auto one = b.conv(x, 384, {3, 3}, 2, "valid");
  const auto two = b.conv(b.conv(b.conv(x, 64, {1, 1}), 96, {3, 3}), 96, {3, 3}, 2, "valid");
  return mixed(3, {one, two, b.maximum(x)});
}

// mixed4 to mixed7: windows of 7 x 7 as rows and columns.
SymbolicTensor factored(Builder& b, const SymbolicTensor& x, int k) {
  const int64_t q = k == 4 ? 128 : k == 7 ? 192 : 160;
  const auto one = b.conv(x, 192, {1, 1});
  const auto seven = b.conv(b.conv(b.conv(x, q, {1, 1}), q, {1, 7}), 192, {7, 1});
  auto twice = b.conv(b.conv(b.conv(x, q, {1, 1}), q, {7, 1}), q, {1, 7});
  twice = b.conv(b.conv(twice, q, {7, 1}), 192, {1, 7});
  return mixed(k, {one, seven, twice, b.conv(b.average(x), 192, {1, 1})});
}

SymbolicTensor second_reduction(Builder& b, const SymbolicTensor& x) {
  const auto three = b.conv(b.conv(x, 192, {1, 1}), 320, {3, 3}, 2, "valid");
  auto seven = b.conv(b.conv(b.conv(x, 192, {1, 1}), 192, {1, 7}), 192, {7, 1});
  seven = b.conv(seven, 192, {3, 3}, 2, "valid");
  return mixed(8, {three, seven, b.maximum(x)});
}

// mixed9 and mixed10.
SymbolicTensor split(Builder& b, const SymbolicTensor& x, int k) {
  const auto one = b.conv(x, 320, {1, 1});
  const auto three = b.conv(x, 384, {1, 1});
  const auto row = b.conv(three, 384, {1, 3});
  const auto column = b.conv(three, 384, {3, 1});
  const auto both = layers::Concatenate{.name = fmt::format("mixed9_{}", k - 9)}({row, column});
  const auto twice = b.conv(b.conv(x, 448, {1, 1}), 384, {3, 3});
  const auto twice_row = b.conv(twice, 384, {1, 3});
  const auto twice_column = b.conv(twice, 384, {3, 1});
  const auto both_twice = b.join({twice_row, twice_column});
  return mixed(k, {one, both, both_twice, b.conv(b.average(x), 192, {1, 1})});
}

}  // namespace

Model inception_v3(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  const SymbolicTensor image = layers::Input({.shape = input_shape});
  Builder b;
  auto x = stem(b, image);
  for (int k = 0; k <= 2; ++k) x = wide(b, x, k);
  x = first_reduction(b, x);
  for (int k = 4; k <= 7; ++k) x = factored(b, x, k);
  x = second_reduction(b, x);
  for (int k = 9; k <= 10; ++k) x = split(b, x, k);
  x = layers::GlobalAveragePooling2D{.name = "avg_pool"}(x);
  x = layers::Dense{.units = classes, .activation = "softmax", .name = "predictions"}(x);
  return Model({image}, {x}, options);
}

}  // namespace rondo::zoo
