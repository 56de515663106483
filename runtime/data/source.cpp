#include "runtime/data/source.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/error.h"

namespace rondo {

std::vector<SampleField> Source::inputs() const {
  return {{.shape = input_shape()}};
}

std::vector<SampleField> Source::labels() const {
  return {{.shape = label_shape(), .dtype = label_dtype(), .classes = classes()}};
}

void Source::read_all(int64_t index, const SamplePlace& place) const {
  require(place.inputs.size() == 1 && place.labels.size() == 1 && !place.inputs[0].empty() &&
              !place.labels[0].empty(),
          "{} has one input and one label, which are read together", name());
  read(index, place.inputs[0], place.labels[0]);
}

void Source::read_weights(int64_t /*index*/, const SamplePlace& place) const {
  for (const std::span<float> weights : place.weights) std::fill(weights.begin(), weights.end(), 1.0f);
}

SubsetSource::SubsetSource(std::shared_ptr<const Source> parent, int64_t first, int64_t count,
                           std::string name)
    : SourceView(std::move(parent)), first_(first), count_(count), name_(std::move(name)) {
  const int64_t size = this->parent().size();
  require(first >= 0 && count >= 0 && first <= size && count <= size - first,
          "samples {} to {} of {} do not all exist; it has {}", first, first + count - 1,
          this->parent().name(), size);
}

SubsetSource::SubsetSource(std::shared_ptr<const Source> parent, std::vector<int64_t> indices,
                           std::string name)
    : SourceView(std::move(parent)),
      count_(static_cast<int64_t>(indices.size())),
      indices_(std::move(indices)),
      name_(std::move(name)) {
  for (const int64_t index : indices_) {
    require(index >= 0 && index < this->parent().size(), "sample {} of {} does not exist; it has {}", index,
            this->parent().name(), this->parent().size());
  }
}

void SubsetSource::read(int64_t index, std::span<float> input, std::span<std::byte> label) const {
  parent().read(index_in_parent(index), input, label);
}

void SubsetSource::read_all(int64_t index, const SamplePlace& place) const {
  if (is_pair(place)) return read(index, place.inputs[0], place.labels[0]);
  parent().read_all(index_in_parent(index), place);
}

void SubsetSource::read_weights(int64_t index, const SamplePlace& place) const {
  parent().read_weights(index_in_parent(index), place);
}

uint64_t SubsetSource::digest() const {
  const uint64_t range[3] = {parent().digest(), static_cast<uint64_t>(first_), static_cast<uint64_t>(count_)};
  return XXH3_64bits_withSeed(indices_.data(), indices_.size() * sizeof(int64_t),
                              XXH3_64bits(range, sizeof range));
}

namespace {

void check_places(const std::vector<size_t>& places, size_t count, const char* what, const Source& parent) {
  for (size_t i = 0; i < places.size(); ++i) {
    require(places[i] < count, "{} {} of {} does not exist; it has {}", what, places[i], parent.name(),
            count);
    require(std::count(places.begin(), places.end(), places[i]) == 1, "{} {} of {} is selected twice", what,
            places[i], parent.name());
  }
}

std::vector<SampleField> selected(const std::vector<SampleField>& fields, const std::vector<size_t>& places) {
  std::vector<SampleField> out;
  for (const size_t place : places) out.push_back(fields[place]);
  return out;
}

}  // namespace

SelectedSource::SelectedSource(std::shared_ptr<const Source> parent, std::vector<size_t> inputs,
                               std::vector<size_t> labels)
    : SourceView(std::move(parent)), inputs_(std::move(inputs)), labels_(std::move(labels)) {
  const size_t all_inputs = this->parent().inputs().size(), all_labels = this->parent().labels().size();
  require(!inputs_.empty(), "no inputs of {} are selected", this->parent().name());
  require(all_inputs <= kMost && all_labels <= kMost,
          "{} has {} inputs and {} labels; the most are {} of each", this->parent().name(), all_inputs,
          all_labels, kMost);
  check_places(inputs_, all_inputs, "input", this->parent());
  check_places(labels_, all_labels, "label", this->parent());
  input_count_ = all_inputs;
  label_count_ = all_labels;
}

std::vector<SampleField> SelectedSource::inputs() const {
  return selected(parent().inputs(), inputs_);
}

std::vector<SampleField> SelectedSource::labels() const {
  return selected(parent().labels(), labels_);
}

// Calls use(place) with the parent's places; those that are not selected are empty.
template <class Use>
void SelectedSource::with_places(const SamplePlace& place, const Use& use) const {
  std::array<std::span<float>, kMost> inputs, weights;
  std::array<std::span<std::byte>, kMost> labels;
  for (size_t i = 0; i < place.inputs.size(); ++i) inputs[inputs_[i]] = place.inputs[i];
  for (size_t i = 0; i < place.labels.size(); ++i) labels[labels_[i]] = place.labels[i];
  for (size_t i = 0; i < place.weights.size(); ++i) weights[labels_[i]] = place.weights[i];
  use(SamplePlace{.inputs = std::span(inputs).first(input_count_),
                  .labels = std::span(labels).first(label_count_),
                  .weights = std::span(weights).first(label_count_)});
}

void SelectedSource::read(int64_t index, std::span<float> input, std::span<std::byte> label) const {
  read_all(index, {.inputs = std::span(&input, 1), .labels = std::span(&label, 1), .weights = {}});
}

void SelectedSource::read_all(int64_t index, const SamplePlace& place) const {
  with_places(place, [&](const SamplePlace& all) { parent().read_all(index, all); });
}

void SelectedSource::read_weights(int64_t index, const SamplePlace& place) const {
  with_places(place, [&](const SamplePlace& all) { parent().read_weights(index, all); });
}

uint64_t SelectedSource::digest() const {
  const uint64_t inputs =
      XXH3_64bits_withSeed(inputs_.data(), inputs_.size() * sizeof(size_t), parent().digest());
  return XXH3_64bits_withSeed(labels_.data(), labels_.size() * sizeof(size_t), inputs + 1);
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
