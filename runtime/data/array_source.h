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

// Of arrays, dense and row-major with the sample as the outermost axis. A span is a view, a vector is owned.
using InputArray =
    std::variant<std::span<const float>, std::span<const uint8_t>, std::vector<float>, std::vector<uint8_t>>;
using LabelArray =
    std::variant<std::span<const int32_t>, std::span<const float>, std::vector<int32_t>, std::vector<float>>;

struct ArrayInput {
  std::string name = {};  // of the model's input that it is for; empty: told by its place
  Shape shape = {};       // of one sample
  InputArray values = {};
  float divisor = 1.0f;  // every element is divided by this when it is read; 255 for 8-bit images
};

struct ArrayLabel {
  std::string name = {};  // of the model's output that it is for; empty: told by its place
  Shape shape = {};       // of one sample; () for a class number
  LabelArray values = {};
  int64_t classes = 0;  // int32 labels must lie in [0, classes); 0: not classes, not checked
};

// Arrays in memory. Whoever owns the memory of spans keeps it alive and unchanged, or hands over an `owner`
// that does.
struct ArrayData {
  std::string name = "arrays";

  Shape input_shape = {};
  InputArray input = {};
  float input_divisor = 1.0f;

  Shape label_shape = {};
  LabelArray labels = {};
  int64_t classes = 0;

  std::shared_ptr<const void> owner = {};
};

// For models with several inputs or outputs.
struct ArraysData {
  std::string name = "arrays";
  std::vector<ArrayInput> inputs = {};
  std::vector<ArrayLabel> labels = {};
  std::shared_ptr<const void> owner = {};
};

class ArraySource : public Source {
 public:
  // Throws InvalidArgument when an array's length does not fit its shape, arrays have different numbers of
  // samples, there are none, or a class label is out of range (the message gives its place).
  explicit ArraySource(ArrayData data);
  explicit ArraySource(ArraysData data);
  ArraySource(const ArraySource&) = delete;
  ArraySource& operator=(const ArraySource&) = delete;

  std::string name() const override { return data_.name; }
  int64_t size() const override { return size_; }
  Shape input_shape() const override { return data_.inputs.front().shape; }
  Shape label_shape() const override { return labels_.front().field.shape; }
  DType label_dtype() const override { return labels_.front().field.dtype; }
  int64_t classes() const override { return labels_.front().field.classes; }
  std::vector<SampleField> inputs() const override;
  std::vector<SampleField> labels() const override;
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override;
  void read_all(int64_t index, const SamplePlace& place) const override;
  uint64_t digest() const override;

 private:
  struct Input {
    std::span<const float> floats;  // in one of the two
    std::span<const uint8_t> bytes;
    float divisor = 1.0f;
    std::array<float, 256> scaled_bytes{};  // x / divisor: a look-up is quicker than a division
    void read(int64_t index, std::span<float> into) const;
  };
  struct Label {
    SampleField field;
    std::span<const std::byte> values;
    void read(int64_t index, std::span<std::byte> into) const;
  };
  int64_t add_input(const ArrayInput& array);
  int64_t add_label(const ArrayLabel& array);

  ArraysData data_;
  std::vector<Input> inputs_;
  std::vector<Label> labels_;
  int64_t size_ = 0;
};

}  // namespace rondo
