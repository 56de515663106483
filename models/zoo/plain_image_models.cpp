// Image models without branches: VGG16 (Simonyan and Zisserman 2014) and MobileNet (Howard et al. 2017), as
// in Keras' applications.
#include <fmt/core.h>

#include "models/layers/advanced_activations.h"
#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/normalization.h"
#include "models/layers/padding.h"
#include "models/layers/pooling.h"
#include "models/layers/separable.h"
#include "models/layers/shape.h"
#include "models/zoo/zoo.h"

namespace rondo::zoo {

Model vgg16(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  const SymbolicTensor image = layers::Input({.shape = input_shape});
  const int convolutions[] = {2, 2, 3, 3, 3};
  auto x = image;
  for (int block = 0; block < 5; ++block) {
    for (int k = 0; k < convolutions[block]; ++k) {
      x = layers::Conv2D{.filters = std::min<int64_t>(int64_t{64} << block, 512),
                         .kernel_size = {3, 3},
                         .padding = "same",
                         .activation = "relu",
                         .name = fmt::format("block{}_conv{}", block + 1, k + 1)}(x);
    }
    x = layers::MaxPooling2D{.name = fmt::format("block{}_pool", block + 1)}(x);
  }
  x = layers::Flatten{.name = "flatten"}(x);
  x = layers::Dense{.units = 4096, .activation = "relu", .name = "fc1"}(x);
  x = layers::Dense{.units = 4096, .activation = "relu", .name = "fc2"}(x);
  x = layers::Dense{.units = classes, .activation = "softmax", .name = "predictions"}(x);
  return Model({image}, {x}, options);
}

namespace {

SymbolicTensor normalized(const SymbolicTensor& x, const std::string& name) {
  const auto y = layers::BatchNormalization{.name = name + "_bn"}(x);
  return layers::ReLU{.max_value = 6.0f, .name = name + "_relu"}(y);
}

// Where the image is halved, one row and column of zeros behind it.
SymbolicTensor padded(const SymbolicTensor& x, const std::string& name) {
  return layers::ZeroPadding2D{.padding = {{{0, 1}, {0, 1}}}, .name = name}(x);
}

SymbolicTensor depthwise_block(const SymbolicTensor& x, int k, int64_t filters, int64_t stride) {
  const std::string depthwise = fmt::format("conv_dw_{}", k), pointwise = fmt::format("conv_pw_{}", k);
  auto y = stride == 1 ? x : padded(x, fmt::format("conv_pad_{}", k));
  y = layers::DepthwiseConv2D{.kernel_size = {3, 3},
                              .strides = {stride, stride},
                              .padding = stride == 1 ? "same" : "valid",
                              .use_bias = false,
                              .name = depthwise}(y);
  y = normalized(y, depthwise);
  y = layers::Conv2D{.filters = filters, .padding = "same", .use_bias = false, .name = pointwise}(y);
  return normalized(y, pointwise);
}

}  // namespace

Model mobilenet(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  const SymbolicTensor image = layers::Input({.shape = input_shape});
  auto x =
      layers::Conv2D{
          .filters = 32, .kernel_size = {3, 3}, .strides = {2, 2}, .use_bias = false, .name = "conv1"}(
          padded(image, "conv1_pad"));
  x = normalized(x, "conv1");
  const int64_t filters[] = {64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024};
  for (int k = 1; k <= 13; ++k) {
    const bool halves = k == 2 || k == 4 || k == 6 || k == 12;
    x = depthwise_block(x, k, filters[k - 1], halves ? 2 : 1);
  }
  x = layers::GlobalAveragePooling2D{.name = "global_average_pooling2d"}(x);
  x = layers::Reshape{.target_shape = {1, 1, 1024}, .name = "reshape_1"}(x);
  x = layers::Dropout{.rate = 1e-3f, .name = "dropout"}(x);
  x = layers::Conv2D{.filters = classes, .padding = "same", .name = "conv_preds"}(x);
  x = layers::Reshape{.target_shape = {classes}, .name = "reshape_2"}(x);
  x = layers::Activation{.activation = "softmax", .name = "act_softmax"}(x);
  return Model({image}, {x}, options);
}

}  // namespace rondo::zoo
