#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/data/source.h"

namespace rondo {

// Arrays in memory, dense and row-major with the sample as the outermost axis. A span is a view: whoever owns
// the memory keeps it alive and unchanged, or hands over an `owner` that does. A vector is owned.
struct ArrayData {
  std::string name = "arrays";

  Shape input_shape = {};  // of one sample
  std::variant<std::span<const float>, std::span<const uint8_t>, std::vector<float>, std::vector<uint8_t>>
      input = {};
  float input_divisor = 1.0f;  // every input element is divided by this when it is read; 255 for 8-bit images

  Shape label_shape = {};  // of one sample; () for a class number
  std::variant<std::span<const int32_t>, std::span<const float>, std::vector<int32_t>, std::vector<float>>
      labels = {};
  int64_t classes = 0;  // int32 labels must lie in [0, classes); 0: not classes, not checked

  std::shared_ptr<const void> owner = {};
};

class ArraySource : public Source {
 public:
  // Throws InvalidArgument when an array's length does not fit its shape, inputs and labels have different
  // numbers of samples, there are none, or a class label is out of range (the message gives its place).
  explicit ArraySource(ArrayData data);
  ArraySource(const ArraySource&) = delete;
  ArraySource& operator=(const ArraySource&) = delete;

  std::string name() const override { return data_.name; }
  int64_t size() const override { return size_; }
  Shape input_shape() const override { return data_.input_shape; }
  Shape label_shape() const override { return data_.label_shape; }
  DType label_dtype() const override { return label_dtype_; }
  int64_t classes() const override { return data_.classes; }
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override;
  uint64_t digest() const override;

 private:
  ArrayData data_;
  std::span<const float> floats_;  // the inputs, in one of the two
  std::span<const uint8_t> bytes_;
  std::array<float, 256> scaled_bytes_{};  // x / input_divisor: a look-up is quicker than a division
  std::span<const std::byte> labels_;
  DType label_dtype_ = DType::kI32;
  int64_t size_ = 0;
};

}  // namespace rondo
