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

}  // namespace

WeightedSource::WeightedSource(std::shared_ptr<const Source> parent, std::vector<float> sample_weights)
    : parent_(std::move(parent)), by_sample_(std::move(sample_weights)) {
  const auto given = static_cast<int64_t>(by_sample_.size());
  require(given == parent_->size(),
          "sample_weight has {} weights, but {} has {} samples; there must be one each", given,
          parent_->name(), parent_->size());
  for (int64_t i = 0; i < given; ++i) {
    check_weight("sample", i, static_cast<double>(by_sample_[static_cast<size_t>(i)]));
  }
}

WeightedSource::WeightedSource(std::shared_ptr<const Source> parent,
                               const std::map<int64_t, double>& class_weights, int64_t classes)
    : parent_(std::move(parent)) {
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
          parent_->name(), classes);
}

float WeightedSource::weight(int64_t index, std::span<const std::byte> label) const {
  float weight = parent_->weight(index, label);
  if (!by_sample_.empty()) weight *= by_sample_[static_cast<size_t>(index)];
  if (by_class_.empty()) return weight;
  const int64_t which = class_of(*parent_, label);
  require(which >= 0 && which < static_cast<int64_t>(by_class_.size()),
          "sample {} of {} is of class {}, which has no class_weight: there are weights for 0 to {}", index,
          parent_->name(), which, by_class_.size() - 1);
  return weight * by_class_[static_cast<size_t>(which)];
}

uint64_t WeightedSource::digest() const {
  const uint64_t samples =
      XXH3_64bits_withSeed(by_sample_.data(), by_sample_.size() * sizeof(float), parent_->digest());
  return XXH3_64bits_withSeed(by_class_.data(), by_class_.size() * sizeof(float), samples + 1);
}

}  // namespace rondo
