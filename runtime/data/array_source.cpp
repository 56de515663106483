#include "runtime/data/array_source.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/base/error.h"

namespace rondo {
namespace {

// Samples in an array of `elements` elements whose samples have `shape`.
int64_t count_samples(const std::string& data, const std::string& what, int64_t elements,
                      const Shape& shape) {
  const int64_t each = shape.elements();
  require(each > 0, "{}: the {} shape {} has no elements", data, what, shape.text());
  require(elements % each == 0, "{}: {} elements of {} do not divide into samples of shape {} ({} elements)",
          data, elements, what, shape.text(), each);
  return elements / each;
}

void check_classes(const std::string& data, const ArrayLabel& array, std::span<const int32_t> labels) {
  require(array.classes >= 0, "{}: {} classes; give the number of classes, or 0 for none", data,
          array.classes);
  if (array.classes == 0) return;
  for (size_t i = 0; i < labels.size(); ++i) {
    require(labels[i] >= 0 && labels[i] < array.classes,
            "{}: label {} of sample {} is out of range; with {} classes labels go from 0 to {}", data,
            labels[i], static_cast<int64_t>(i) / array.shape.elements(), array.classes, array.classes - 1);
  }
}

// "labels", "labels \"age\"".
std::string called(const char* what, const std::string& name) {
  return name.empty() ? what : fmt::format("{} \"{}\"", what, name);
}

ArraysData single(ArrayData data) {
  ArraysData arrays{.name = std::move(data.name), .owner = std::move(data.owner)};
  arrays.inputs.push_back(
      {.shape = data.input_shape, .values = std::move(data.input), .divisor = data.input_divisor});
  arrays.labels.push_back(
      {.shape = data.label_shape, .values = std::move(data.labels), .classes = data.classes});
  return arrays;
}

// Everything up to kWhole; of more, evenly spaced blocks, so that start-up stays quick.
uint64_t digest_bytes(std::span<const std::byte> bytes, uint64_t seed) {
  constexpr size_t kWhole = size_t{64} << 20;
  constexpr size_t kBlocks = 64;
  constexpr size_t kBlock = size_t{1} << 20;
  seed ^= bytes.size();
  if (bytes.size() <= kWhole) return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
  for (size_t i = 0; i < kBlocks; ++i) {
    const size_t at = (bytes.size() - kBlock) / (kBlocks - 1) * i;
    seed = XXH3_64bits_withSeed(bytes.data() + at, kBlock, seed);
  }
  return seed;
}

}  // namespace

ArraySource::ArraySource(ArrayData data) : ArraySource(single(std::move(data))) {}

ArraySource::ArraySource(ArraysData data) : data_(std::move(data)) {
  require(!data_.inputs.empty() && !data_.labels.empty(),
          "{}: {} inputs and {} labels; give at least one each", data_.name, data_.inputs.size(),
          data_.labels.size());
  for (size_t i = 0; i < data_.inputs.size(); ++i) {
    const int64_t samples = add_input(data_.inputs[i]);
    if (i == 0) size_ = samples;
    require(samples == size_, "{}: {} have {} samples, the first ones {}; they must be alike", data_.name,
            called("inputs", data_.inputs[i].name), samples, size_);
  }
  for (const ArrayLabel& array : data_.labels) {
    const int64_t samples = add_label(array);
    require(samples == size_, "{}: {} samples have {} {}; each sample needs one", data_.name, size_, samples,
            called("labels", array.name));
  }
  require(size_ > 0, "{}: the data set is empty; at least one sample is needed", data_.name);
}

int64_t ArraySource::add_input(const ArrayInput& array) {
  Input& input = inputs_.emplace_back();
  std::visit(
      [&](const auto& values) {
        if constexpr (std::is_same_v<std::decay_t<decltype(values[0])>, float>) {
          input.floats = values;
        } else {
          input.bytes = values;
        }
      },
      array.values);
  require(array.divisor != 0.0f, "{}: inputs cannot be divided by 0", data_.name);
  input.divisor = array.divisor;
  for (size_t x = 0; x < input.scaled_bytes.size(); ++x) {
    input.scaled_bytes[x] = static_cast<float>(x) / array.divisor;
  }
  const auto elements = static_cast<int64_t>(input.floats.size() + input.bytes.size());
  return count_samples(data_.name, called("inputs", array.name), elements, array.shape);
}

int64_t ArraySource::add_label(const ArrayLabel& array) {
  Label& label = labels_.emplace_back();
  label.field = {.name = array.name, .shape = array.shape, .classes = array.classes};
  return std::visit(
      [&](const auto& values) {
        using T = std::decay_t<decltype(values[0])>;
        label.field.dtype = dtype_of<T>;
        if constexpr (std::is_same_v<T, int32_t>) check_classes(data_.name, array, values);
        label.values = std::as_bytes(std::span(values));
        return count_samples(data_.name, called("labels", array.name), static_cast<int64_t>(values.size()),
                             array.shape);
      },
      array.values);
}

std::vector<SampleField> ArraySource::inputs() const {
  std::vector<SampleField> fields;
  for (const ArrayInput& input : data_.inputs) fields.push_back({.name = input.name, .shape = input.shape});
  return fields;
}

std::vector<SampleField> ArraySource::labels() const {
  std::vector<SampleField> fields;
  for (const Label& label : labels_) fields.push_back(label.field);
  return fields;
}

void ArraySource::Input::read(int64_t index, std::span<float> into) const {
  const size_t each = into.size();
  const size_t first = static_cast<size_t>(index) * each;
  if (!bytes.empty()) {
    const auto from = bytes.subspan(first, each);
    std::transform(from.begin(), from.end(), into.begin(), [this](uint8_t x) { return scaled_bytes[x]; });
    return;
  }
  const auto from = floats.subspan(first, each);
  if (divisor == 1.0f) {
    std::copy(from.begin(), from.end(), into.begin());
  } else {
    const float by = divisor;
    std::transform(from.begin(), from.end(), into.begin(), [by](float x) { return x / by; });
  }
}

void ArraySource::Label::read(int64_t index, std::span<std::byte> into) const {
  std::memcpy(into.data(), values.data() + static_cast<size_t>(index) * into.size(), into.size());
}

void ArraySource::read(int64_t index, std::span<float> input, std::span<std::byte> label) const {
  inputs_.front().read(index, input);
  labels_.front().read(index, label);
}

void ArraySource::read_all(int64_t index, const SamplePlace& place) const {
  for (size_t i = 0; i < place.inputs.size(); ++i) {
    if (!place.inputs[i].empty()) inputs_[i].read(index, place.inputs[i]);
  }
  for (size_t i = 0; i < place.labels.size(); ++i) {
    if (!place.labels[i].empty()) labels_[i].read(index, place.labels[i]);
  }
}

uint64_t ArraySource::digest() const {
  uint64_t digest = static_cast<uint64_t>(size_);
  const auto add_text = [&](const std::string& text) {
    digest = XXH3_64bits_withSeed(text.data(), text.size(), digest);
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    add_text(fmt::format("{} {} {}", data_.inputs[i].name, data_.inputs[i].shape.text(), inputs_[i].divisor));
    digest = digest_bytes(std::as_bytes(inputs_[i].floats), digest);
    digest = digest_bytes(std::as_bytes(inputs_[i].bytes), digest);
  }
  for (const Label& label : labels_) {
    add_text(fmt::format("{} {} {}", label.field.name, label.field.shape.text(), label.field.classes));
    digest = digest_bytes(label.values, digest);
  }
  return digest;
}

}  // namespace rondo
