#include "runtime/data/source.h"

#include <xxhash.h>

#include <cmath>

#include "runtime/base/error.h"

namespace rondo {

SubsetSource::SubsetSource(std::shared_ptr<const Source> parent, int64_t first, int64_t count,
                           std::string name)
    : parent_(std::move(parent)), first_(first), count_(count), name_(std::move(name)) {
  require(first >= 0 && count >= 0 && first <= parent_->size() && count <= parent_->size() - first,
          "samples {} to {} of {} do not all exist; it has {}", first, first + count - 1, parent_->name(),
          parent_->size());
}

SubsetSource::SubsetSource(std::shared_ptr<const Source> parent, std::vector<int64_t> indices,
                           std::string name)
    : parent_(std::move(parent)),
      count_(static_cast<int64_t>(indices.size())),
      indices_(std::move(indices)),
      name_(std::move(name)) {
  for (const int64_t index : indices_) {
    require(index >= 0 && index < parent_->size(), "sample {} of {} does not exist; it has {}", index,
            parent_->name(), parent_->size());
  }
}

void SubsetSource::read(int64_t index, std::span<float> input, std::span<std::byte> label) const {
  parent_->read(index_in_parent(index), input, label);
}

float SubsetSource::weight(int64_t index, std::span<const std::byte> label) const {
  return parent_->weight(index_in_parent(index), label);
}

uint64_t SubsetSource::digest() const {
  const uint64_t range[3] = {parent_->digest(), static_cast<uint64_t>(first_), static_cast<uint64_t>(count_)};
  return XXH3_64bits_withSeed(indices_.data(), indices_.size() * sizeof(int64_t),
                              XXH3_64bits(range, sizeof range));
}

TrainValidation split_validation(const std::shared_ptr<const Source>& source, double fraction) {
  require(fraction > 0.0 && fraction < 1.0, "the validation split is {}; it must lie between 0 and 1",
          fraction);
  const int64_t size = source->size();
  const auto split_at = static_cast<int64_t>(std::floor(static_cast<double>(size) * (1.0 - fraction)));
  require(split_at > 0 && split_at < size,
          "a validation split of {} leaves {} of {} samples of {} for training and {} for validation; both "
          "need at "
          "least one",
          fraction, split_at, size, source->name(), size - split_at);
  return {
      .train = std::make_shared<SubsetSource>(source, 0, split_at, source->name() + " (training part)"),
      .validation = std::make_shared<SubsetSource>(source, split_at, size - split_at,
                                                   source->name() + " (validation part)"),
  };
}

}  // namespace rondo
