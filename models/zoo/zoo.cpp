#include "models/zoo/zoo.h"

#include <array>

#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/pooling.h"
#include "runtime/base/error.h"

namespace rondo::zoo {
namespace {

struct Entry {
  std::string_view name;
  Model (*make)(const Shape& input_shape, int64_t classes, uint64_t seed);
};

constexpr std::array<Entry, 3> kModels{{
    {"mlp",
     [](const Shape& input_shape, int64_t classes, uint64_t seed) {
       return mlp(input_shape, classes, {.model = {.name = "mlp", .seed = seed}});
     }},
    {"cnn", [](const Shape& input_shape, int64_t classes,
               uint64_t seed) { return cnn(input_shape, classes, {.name = "cnn", .seed = seed}); }},
    {"lenet5", [](const Shape& input_shape, int64_t classes,
                  uint64_t seed) { return lenet5(input_shape, classes, {.name = "lenet5", .seed = seed}); }},
}};

}  // namespace

Model mlp(const Shape& input_shape, int64_t classes, const MlpOptions& options) {
  std::vector<LayerHandle> chain{layers::Input({.shape = input_shape}), layers::Flatten{}};
  for (int hidden = 0; hidden < 2; ++hidden) {
    chain.emplace_back(layers::Dense{.units = 512, .activation = "relu"});
    if (options.dropout > 0.0f) chain.emplace_back(layers::Dropout{.rate = options.dropout});
  }
  chain.emplace_back(layers::Dense{.units = classes, .activation = "softmax"});
  return Sequential(chain, options.model);
}

Model cnn(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  return Sequential(
      {layers::Input({.shape = input_shape}),
       layers::Conv2D{.filters = 32, .kernel_size = {3, 3}, .activation = "relu"},
       layers::Conv2D{.filters = 64, .kernel_size = {3, 3}, .activation = "relu"}, layers::MaxPooling2D{},
       layers::Dropout{.rate = 0.25f}, layers::Flatten{}, layers::Dense{.units = 128, .activation = "relu"},
       layers::Dropout{.rate = 0.5f}, layers::Dense{.units = classes, .activation = "softmax"}},
      options);
}

Model lenet5(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  return Sequential(
      {layers::Input({.shape = input_shape}),
       layers::Conv2D{.filters = 6, .kernel_size = {5, 5}, .padding = "same", .activation = "tanh"},
       layers::AveragePooling2D{}, layers::Conv2D{.filters = 16, .kernel_size = {5, 5}, .activation = "tanh"},
       layers::AveragePooling2D{}, layers::Flatten{}, layers::Dense{.units = 120, .activation = "tanh"},
       layers::Dense{.units = 84, .activation = "tanh"},
       layers::Dense{.units = classes, .activation = "softmax"}},
      options);
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const Entry& entry : kModels) out.emplace_back(entry.name);
  return out;
}

Model make(std::string_view name, const Shape& input_shape, int64_t classes, uint64_t seed) {
  require(classes > 0, "a model needs at least one class, got {}", classes);
  std::string known;
  for (const Entry& entry : kModels) {
    if (entry.name == name) return entry.make(input_shape, classes, seed);
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  raise<InvalidArgument>("unknown model \"{}\"; choose one of {}", name, known);
}

}  // namespace rondo::zoo
