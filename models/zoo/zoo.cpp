#include "models/zoo/zoo.h"

#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/pooling.h"
#include "runtime/base/error.h"

namespace rondo::zoo {
namespace {

struct Entry {
  std::string_view name;
  Shape input_shape;
  int64_t classes;
  Model (*make)(const Shape& input_shape, int64_t classes, uint64_t seed);
};

template <Model (*kMake)(const Shape&, int64_t, const ModelOptions&)>
Model named(const Shape& input_shape, int64_t classes, uint64_t seed, const char* name) {
  return kMake(input_shape, classes, {.name = name, .seed = seed});
}

Model make_mlp(const Shape& input_shape, int64_t classes, const ModelOptions& options) {
  return mlp(input_shape, classes, {.model = options});
}

const std::vector<Entry>& entries() {
  static const Shape kDigits{28, 28, 1};
  static const std::vector<Entry> kModels{
      {"mlp", kDigits, 10, [](auto& in, auto n, auto seed) { return named<&make_mlp>(in, n, seed, "mlp"); }},
      {"cnn", kDigits, 10, [](auto& in, auto n, auto seed) { return named<&cnn>(in, n, seed, "cnn"); }},
      {"lenet5", kDigits, 10,
       [](auto& in, auto n, auto seed) { return named<&lenet5>(in, n, seed, "lenet5"); }},
      {"xception",
       {299, 299, 3},
       1000,
       [](auto& in, auto n, auto seed) { return named<&xception>(in, n, seed, "xception"); }},
      {"resnet50",
       {224, 224, 3},
       1000,
       [](auto& in, auto n, auto seed) { return named<&resnet50>(in, n, seed, "resnet50"); }},
      {"vgg16",
       {224, 224, 3},
       1000,
       [](auto& in, auto n, auto seed) { return named<&vgg16>(in, n, seed, "vgg16"); }},
      {"mobilenet",
       {224, 224, 3},
       1000,
       [](auto& in, auto n, auto seed) { return named<&mobilenet>(in, n, seed, "mobilenet_1.00_224"); }},
      {"inception_v3",
       {299, 299, 3},
       1000,
       [](auto& in, auto n, auto seed) { return named<&inception_v3>(in, n, seed, "inception_v3"); }},
      {"transformer", kDigits, 10,
       [](auto& in, auto n, auto seed) { return named<&transformer>(in, n, seed, "transformer"); }},
      {"lstm_classifier", kDigits, 10,
       [](auto& in, auto n, auto seed) { return named<&lstm_classifier>(in, n, seed, "lstm_classifier"); }},
  };
  return kModels;
}

const Entry& find(std::string_view name) {
  std::string known;
  for (const Entry& entry : entries()) {
    if (entry.name == name) return entry;
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  raise<InvalidArgument>("unknown model \"{}\"; choose one of {}", name, known);
}

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
  for (const Entry& entry : entries()) out.emplace_back(entry.name);
  return out;
}

Preset preset(std::string_view name) {
  const Entry& entry = find(name);
  return {entry.input_shape, entry.classes};
}

Model make(std::string_view name, const Shape& input_shape, int64_t classes, uint64_t seed) {
  require(classes > 0, "a model needs at least one class, got {}", classes);
  return find(name).make(input_shape, classes, seed);
}

}  // namespace rondo::zoo
