#include "runtime/data/array_source.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/base/error.h"

namespace rondo {
namespace {

// Samples in an array of `elements` elements whose samples have `shape`.
int64_t count_samples(const ArrayData& data, const char* what, int64_t elements, const Shape& shape) {
  const int64_t each = shape.elements();
  require(each > 0, "{}: the {} shape {} has no elements", data.name, what, shape.text());
  require(elements % each == 0, "{}: {} elements of {} do not divide into samples of shape {} ({} elements)",
          data.name, elements, what, shape.text(), each);
  return elements / each;
}

void check_classes(const ArrayData& data, std::span<const int32_t> labels) {
  require(data.classes >= 0, "{}: {} classes; give the number of classes, or 0 for none", data.name,
          data.classes);
  if (data.classes == 0) return;
  for (size_t i = 0; i < labels.size(); ++i) {
    require(labels[i] >= 0 && labels[i] < data.classes,
            "{}: label {} of sample {} is out of range; with {} classes labels go from 0 to {}", data.name,
            labels[i], static_cast<int64_t>(i) / data.label_shape.elements(), data.classes, data.classes - 1);
  }
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

ArraySource::ArraySource(ArrayData data) : data_(std::move(data)) {
  std::visit(
      [&](const auto& array) {
        if constexpr (std::is_same_v<std::decay_t<decltype(array[0])>, float>) {
          floats_ = array;
        } else {
          bytes_ = array;
        }
      },
      data_.input);
  require(data_.input_divisor != 0.0f, "{}: inputs cannot be divided by 0", data_.name);
  for (size_t x = 0; x < scaled_bytes_.size(); ++x) {
    scaled_bytes_[x] = static_cast<float>(x) / data_.input_divisor;
  }
  size_ =
      count_samples(data_, "inputs", static_cast<int64_t>(floats_.size() + bytes_.size()), data_.input_shape);

  const int64_t label_count = std::visit(
      [&](const auto& array) {
        using T = std::decay_t<decltype(array[0])>;
        label_dtype_ = dtype_of<T>;
        if constexpr (std::is_same_v<T, int32_t>) check_classes(data_, array);
        labels_ = std::as_bytes(std::span(array));
        return count_samples(data_, "labels", static_cast<int64_t>(array.size()), data_.label_shape);
      },
      data_.labels);
  require(size_ == label_count, "{}: {} samples have {} labels; each sample needs one", data_.name, size_,
          label_count);
  require(size_ > 0, "{}: the data set is empty; at least one sample is needed", data_.name);
}

void ArraySource::read(int64_t index, std::span<float> input, std::span<std::byte> label) const {
  const size_t each = input.size();
  const size_t first = static_cast<size_t>(index) * each;
  if (!bytes_.empty()) {
    const auto from = bytes_.subspan(first, each);
    std::transform(from.begin(), from.end(), input.begin(), [this](uint8_t x) { return scaled_bytes_[x]; });
  } else {
    const auto from = floats_.subspan(first, each);
    const float divisor = data_.input_divisor;
    if (divisor == 1.0f) {
      std::copy(from.begin(), from.end(), input.begin());
    } else {
      std::transform(from.begin(), from.end(), input.begin(), [divisor](float x) { return x / divisor; });
    }
  }
  std::memcpy(label.data(), labels_.data() + static_cast<size_t>(index) * label.size(), label.size());
}

uint64_t ArraySource::digest() const {
  const std::string header = fmt::format("{} {} {} {} {}", size_, data_.input_shape.text(),
                                         data_.input_divisor, data_.label_shape.text(), data_.classes);
  uint64_t digest = XXH3_64bits(header.data(), header.size());
  digest = digest_bytes(std::as_bytes(floats_), digest);
  digest = digest_bytes(std::as_bytes(bytes_), digest);
  return digest_bytes(labels_, digest);
}

}  // namespace rondo
