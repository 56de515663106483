#include <fmt/core.h>

#include "models/layers/attention.h"
#include "models/layers/core.h"
#include "models/layers/layer_normalization.h"
#include "models/layers/merge.h"
#include "models/layers/recurrent.h"
#include "models/layers/shape.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"

namespace rondo::zoo {
namespace {

// Images of one channel as a sequence of their rows.
SymbolicTensor sequence(const SymbolicTensor& input) {
  const Shape& shape = input.shape();
  if (shape.rank() == 2) return input;
  require(shape.rank() == 3 && shape[2] == 1,
          "sequence models take samples (time, features) or images of one channel, got {}", shape.text());
  return layers::Reshape{.target_shape = {shape[0], shape[1]}, .name = "rows"}(input);
}

SymbolicTensor encoder_block(const SymbolicTensor& x, int k, int64_t width) {
  const std::string block = fmt::format("block{}", k);
  auto y = layers::LayerNormalization{.name = block + "_attention_norm"}(x);
  y = layers::MultiHeadAttention{.num_heads = 4, .key_dim = width / 4, .name = block + "_attention"}({y, y});
  y = layers::Dropout{.rate = 0.1f, .name = block + "_attention_dropout"}(y);
  const auto z = layers::Add{.name = block + "_attention_add"}({x, y});
  y = layers::LayerNormalization{.name = block + "_mlp_norm"}(z);
  y = layers::Dense{.units = 2 * width, .activation = "gelu", .name = block + "_mlp1"}(y);
  y = layers::Dense{.units = width, .name = block + "_mlp2"}(y);
  y = layers::Dropout{.rate = 0.1f, .name = block + "_mlp_dropout"}(y);
  return layers::Add{.name = block + "_mlp_add"}({z, y});
}

}  // namespace

Model transformer(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  constexpr int64_t kWidth = 64;
  const SymbolicTensor input = layers::Input({.shape = input_shape});
  auto x = layers::Dense{.units = kWidth, .name = "embedding"}(sequence(input));
  for (int k = 1; k <= 2; ++k) x = encoder_block(x, k, kWidth);
  x = layers::LayerNormalization{.name = "norm"}(x);
  x = layers::Flatten{.name = "flatten"}(x);  // the dense layer behind it tells positions apart
  x = layers::Dense{.units = classes, .activation = "softmax", .name = "predictions"}(x);
  return Model({input}, {x}, options);
}

Model lstm_classifier(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  const SymbolicTensor input = layers::Input({.shape = input_shape});
  auto x = layers::LSTM{.units = 128, .name = "lstm"}(sequence(input));
  x = layers::Dense{.units = classes, .activation = "softmax", .name = "predictions"}(x);
  return Model({input}, {x}, options);
}

}  // namespace rondo::zoo
