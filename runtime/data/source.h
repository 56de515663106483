// Source: samples by index. A source has no policy: order, batches and ranks are the sampler's and the
// loader's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/tensor/shape.h"

namespace rondo {

class Source {
 public:
  virtual ~Source() = default;

  virtual std::string name() const = 0;   // for messages: "fashion-mnist (train)"
  virtual int64_t size() const = 0;       // samples
  virtual Shape input_shape() const = 0;  // of one sample, e.g. (28, 28, 1)
  // Labels of one sample: an int32 class number has shape (), float32 targets have theirs, e.g. (10).
  virtual Shape label_shape() const = 0;
  virtual DType label_dtype() const = 0;  // kI32 or kF32
  virtual int64_t classes() const = 0;    // labels lie in [0, classes); 0 when labels are not classes

  // Writes sample `index` (in [0, size())) as the network takes it: inputs scaled, float32. `input` has
  // input_shape().elements() elements, `label` has label_bytes() bytes and is aligned for label_dtype(). May
  // be called from several threads at once. Throws FileError when the sample cannot be read.
  virtual void read(int64_t index, std::span<float> input, std::span<std::byte> label) const = 0;

  // Samples whose losses weigh differently: see weighted.h. `label` is what read() wrote.
  virtual bool weighted() const { return false; }
  virtual float weight(int64_t /*index*/, std::span<const std::byte> /*label*/) const { return 1.0f; }

  // Equal on two ranks when they see the same samples; compared at start. Not for security.
  virtual uint64_t digest() const = 0;

  int64_t input_elements() const { return input_shape().elements(); }
  int64_t label_bytes() const { return label_shape().elements() * dtype_size(label_dtype()); }
};

// Some samples of another source, in the given order.
class SubsetSource : public Source {
 public:
  // Samples first .. first + count - 1. Throws InvalidArgument when they do not all exist.
  SubsetSource(std::shared_ptr<const Source> parent, int64_t first, int64_t count, std::string name);
  // The samples of `indices`, which may repeat. Throws InvalidArgument when one does not exist.
  SubsetSource(std::shared_ptr<const Source> parent, std::vector<int64_t> indices, std::string name);

  std::string name() const override { return name_; }
  int64_t size() const override { return count_; }
  Shape input_shape() const override { return parent_->input_shape(); }
  Shape label_shape() const override { return parent_->label_shape(); }
  DType label_dtype() const override { return parent_->label_dtype(); }
  int64_t classes() const override { return parent_->classes(); }
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override;
  uint64_t digest() const override;
  bool weighted() const override { return parent_->weighted(); }
  float weight(int64_t index, std::span<const std::byte> label) const override;

 private:
  int64_t index_in_parent(int64_t index) const {
    return indices_.empty() ? first_ + index : indices_[static_cast<size_t>(index)];
  }

  std::shared_ptr<const Source> parent_;
  int64_t first_ = 0;
  int64_t count_ = 0;
  std::vector<int64_t> indices_;  // empty: the range
  std::string name_;
};

struct TrainValidation {
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> validation;
};

// Keras' validation_split: the last samples, before any shuffling, are held out; training keeps the first
// floor(n (1 - fraction)). Throws InvalidArgument when fraction is not in (0, 1) or a part would be empty.
TrainValidation split_validation(const std::shared_ptr<const Source>& source, double fraction);

}  // namespace rondo
