#include "models/keras/class_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "models/graph/layer.h"

namespace rondo::keras {
namespace {

bool is(std::string_view text, size_t at, int (*test)(int)) {
  return at < text.size() && test(static_cast<unsigned char>(text[at])) != 0;
}

// "MaxPooling2D" to "max_pooling2d", "ReLU" to "re_lu": a word begins before a capital that a small letter
// follows, and between a small letter and a capital.
std::string snake_case(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool capital = is(name, i, std::isupper);
    if (capital && i > 0 && (is(name, i + 1, std::islower) || is(name, i - 1, std::islower))) out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

struct Inner {
  std::string_view weight;        // the first part of the weight's name
  std::string_view attribute;     // the layer inside, by Keras' name of the attribute
  std::string_view earlier = {};  // of tf.keras, and of Keras 3 up to 3.4
};
constexpr std::array<Inner, 6> kInner{{
    {"lstm_cell", "cell"},
    {"gru_cell", "cell"},
    {"query", "query_dense", "_query_dense"},
    {"key", "key_dense", "_key_dense"},
    {"value", "value_dense", "_value_dense"},
    {"attention_output", "output_dense", "_output_dense"},
}};

Inner inner_of(std::string_view part) {
  if (part.starts_with("forward_")) return {part, "forward_layer"};
  if (part.starts_with("backward_")) return {part, "backward_layer"};
  for (const Inner& inner : kInner) {
    if (inner.weight == part) return inner;
  }
  return {part, part};
}

}  // namespace

std::string ClassNames::next(std::string_view class_name) {
  const std::string name = snake_case(class_name);
  const int count = counts_[name]++;
  return count == 0 ? name : name + "_" + std::to_string(count);
}

std::vector<std::string> VariablePlaces::next(std::string_view weight) {
  const size_t slash = weight.rfind('/');
  std::string_view parts = slash == std::string_view::npos ? std::string_view() : weight.substr(0, slash);
  const std::string number = "vars/" + std::to_string(counts_[std::string(parts)]++);
  std::string place, earlier;
  while (!parts.empty()) {
    const size_t end = std::min(parts.find('/'), parts.size());
    const Inner inner = inner_of(parts.substr(0, end));
    place += std::string(inner.attribute) + "/";
    earlier += std::string(inner.earlier.empty() ? inner.attribute : inner.earlier) + "/";
    parts.remove_prefix(std::min(end + 1, parts.size()));
  }
  if (earlier == place) return {place + number};
  std::vector<std::string> places{place + number, earlier + number};
  if (dialect_ == KerasDialect::kTfKeras) std::swap(places[0], places[1]);
  return places;
}

}  // namespace rondo::keras
