#include "runtime/data/weighted.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace rondo {
namespace {

// -1 for a label that is no whole number.
int64_t class_of(const Source& source, std::span<const std::byte> label) {
  if (source.label_dtype() == DType::kI32) return *reinterpret_cast<const int32_t*>(label.data());
  const auto* values = reinterpret_cast<const float*>(label.data());
  const int64_t count = source.label_shape().elements();
  if (count > 1) return std::max_element(values, values + count) - values;
  const auto whole = static_cast<int64_t>(values[0]);
  return static_cast<float>(whole) == values[0] ? whole : -1;
}

void check_weight(const char* of, int64_t which, double weight) {
  require(weight >= 0.0 && std::isfinite(weight),
          "the weight of {} {} is {}; it must be a number of at least 0", of, which, weight);
}

// The fewest leading extents that have so many elements; nothing where none have.
std::optional<Shape> leading_part(const Shape& shape, int64_t elements) {
  for (int rank = 0; rank <= shape.rank(); ++rank) {
    const Shape part(shape.extents().first(static_cast<size_t>(rank)));
    if (part.elements() == elements) return part;
  }
  return std::nullopt;
}

std::string of_label(const SampleField& label) {
  if (label.shape.rank() == 0) return {};
  return fmt::format(" with {}labels of shape {}", label.name.empty() ? "" : label.name + " ",
                     label.shape.text());
}

}  // namespace

WeightedSource::WeightedSource(std::shared_ptr<const Source> parent, std::vector<float> sample_weights)
    : WeightedSource(parent, std::vector<std::vector<float>>(parent->labels().size(), sample_weights)) {}

WeightedSource::WeightedSource(std::shared_ptr<const Source> parent, std::vector<std::vector<float>> by_label)
    : SourceView(std::move(parent)), labels_(this->parent().labels()), by_sample_(std::move(by_label)) {
  require(by_sample_.size() == labels_.size(), "there are sample weights for {} labels, but {} has {}",
          by_sample_.size(), this->parent().name(), labels_.size());
  const int64_t samples = size();
  for (size_t i = 0; i < labels_.size(); ++i) {
    SampleField& label = labels_[i];
    const auto given = static_cast<int64_t>(by_sample_[i].size());
    per_sample_.push_back(std::max<int64_t>(given / samples, 1));
    if (given == 0) continue;
    const std::optional<Shape> shape =
        given % samples == 0 ? leading_part(label.shape, given / samples) : std::nullopt;
    require(
        shape.has_value(),
        "sample_weight has {} weights, but {} has {} samples{}; there must be one each, or for labels with "
        "a time axis one for each time step",
        given, this->parent().name(), samples, of_label(label));
    for (int64_t w = 0; w < given; ++w) {
      check_weight("sample", w / per_sample_[i], static_cast<double>(by_sample_[i][static_cast<size_t>(w)]));
    }
    // Each of the two may be the finer one.
    if (!label.weights || label.weights->elements() < shape->elements()) label.weights = shape;
  }
}

WeightedSource::WeightedSource(std::shared_ptr<const Source> parent,
                               const std::map<int64_t, double>& class_weights, int64_t classes)
    : SourceView(std::move(parent)), labels_(this->parent().labels()) {
  require(labels_.size() == 1, "class_weight is for one label; {} has {}", this->parent().name(),
          labels_.size());
  require(labels_[0].shape.rank() <= 1,
          "class_weight is for labels of one class a sample; {} has labels of shape {}",
          this->parent().name(), labels_[0].shape.text());
  if (!labels_[0].weights) labels_[0].weights = Shape{};
  require(!class_weights.empty(), "class_weight has no classes");
  for (const auto& [which, weight] : class_weights) {
    const auto expected = static_cast<int64_t>(by_class_.size());
    require(which == expected,
            "class_weight has a weight for class {}, but {} for class {}; it must have one for "
            "each of 0 to the number of classes - 1",
            which, which > expected ? "none" : "not", expected);
    check_weight("class", which, weight);
    by_class_.push_back(static_cast<float>(weight));
  }
  require(classes <= static_cast<int64_t>(by_class_.size()),
          "class_weight has weights for the classes 0 to {}, but {} has {} classes", by_class_.size() - 1,
          this->parent().name(), classes);
}

void WeightedSource::read_weights(int64_t index, const SamplePlace& place) const {
  parent().read_weights(index, place);
  for (size_t i = 0; i < by_sample_.size(); ++i) {
    const std::span<float> weights = place.weights[i];
    if (by_sample_[i].empty() || weights.empty()) continue;
    const auto own = static_cast<size_t>(per_sample_[i]);
    const float* of = by_sample_[i].data() + static_cast<size_t>(index) * own;
    const size_t each = weights.size() / own;
    for (size_t w = 0; w < weights.size(); ++w) weights[w] *= of[w / each];
  }
  if (by_class_.empty() || place.weights[0].empty()) return;
  const int64_t which = class_of(parent(), place.labels[0]);
  require(which >= 0 && which < static_cast<int64_t>(by_class_.size()),
          "sample {} of {} is of class {}, which has no class_weight: there are weights for 0 to {}", index,
          parent().name(), which, by_class_.size() - 1);
  for (float& weight : place.weights[0]) weight *= by_class_[static_cast<size_t>(which)];
}

uint64_t WeightedSource::digest() const {
  uint64_t digest = parent().digest();
  for (const std::vector<float>& weights : by_sample_) {
    digest = XXH3_64bits_withSeed(weights.data(), weights.size() * sizeof(float), digest + 1);
  }
  return XXH3_64bits_withSeed(by_class_.data(), by_class_.size() * sizeof(float), digest + 1);
}

}  // namespace rondo
