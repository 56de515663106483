// Source: samples by index. A source has no policy: order, batches and ranks are the sampler's and the
// loader's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/tensor/shape.h"

namespace rondo {

// One input or one label of every sample.
struct SampleField {
  std::string name = {};  // of the model's input or output that it is for; empty: told by its place
  Shape shape = {};       // of one sample
  DType dtype = DType::kF32;
  int64_t classes = 0;  // of labels: as Source::classes
  // Of labels whose losses weigh differently: extents of a sample's weights, () for one number, or a leading
  // part of the label's, as (T) for one weight in each time step. Nothing: all 1. See weighted.h.
  std::optional<Shape> weights = std::nullopt;

  int64_t bytes() const { return shape.elements() * dtype_size(dtype); }
};

// Where one sample goes: a place for each input, label, and label's weights. An empty one is not wanted. The
// weights may be asked for in a multiple of their number: each then comes so many times.
struct SamplePlace {
  std::span<const std::span<float>> inputs;
  std::span<const std::span<std::byte>> labels;
  std::span<const std::span<float>> weights;
};

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

  // Sources of models with several inputs or outputs: all of them, of which the functions above tell the
  // first. What is not overridden is one input and one label without weights.
  virtual std::vector<SampleField> inputs() const;
  virtual std::vector<SampleField> labels() const;
  // As read(), for all of them, but for the weights. Throws InvalidArgument where one that the source cannot
  // leave out has no place.
  virtual void read_all(int64_t index, const SamplePlace& place) const;
  // Writes the weights of a sample whose labels are in `place` already.
  virtual void read_weights(int64_t index, const SamplePlace& place) const;

  // Equal on two ranks when they see the same samples; compared at start. Not for security.
  virtual uint64_t digest() const = 0;

  int64_t input_elements() const { return input_shape().elements(); }
  int64_t label_bytes() const { return label_shape().elements() * dtype_size(label_dtype()); }
};

// Passes on what another source has. The base of views that change a part of it.
class SourceView : public Source {
 public:
  explicit SourceView(std::shared_ptr<const Source> parent) : parent_(std::move(parent)) {}

  std::string name() const override { return parent_->name(); }
  int64_t size() const override { return parent_->size(); }
  Shape input_shape() const override { return parent_->input_shape(); }
  Shape label_shape() const override { return parent_->label_shape(); }
  DType label_dtype() const override { return parent_->label_dtype(); }
  int64_t classes() const override { return parent_->classes(); }
  std::vector<SampleField> inputs() const override { return parent_->inputs(); }
  std::vector<SampleField> labels() const override { return parent_->labels(); }
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override {
    parent_->read(index, input, label);
  }
  // One input with one label goes through read(), the others to the parent.
  void read_all(int64_t index, const SamplePlace& place) const override {
    is_pair(place) ? read(index, place.inputs[0], place.labels[0]) : parent_->read_all(index, place);
  }
  void read_weights(int64_t index, const SamplePlace& place) const override {
    parent_->read_weights(index, place);
  }

 protected:
  const Source& parent() const { return *parent_; }
  static bool is_pair(const SamplePlace& place) {
    return place.inputs.size() == 1 && place.labels.size() == 1 && !place.inputs[0].empty() &&
           !place.labels[0].empty();
  }

 private:
  std::shared_ptr<const Source> parent_;
};

// Some samples of another source, in the given order.
class SubsetSource : public SourceView {
 public:
  // Samples first .. first + count - 1. Throws InvalidArgument when they do not all exist.
  SubsetSource(std::shared_ptr<const Source> parent, int64_t first, int64_t count, std::string name);
  // The samples of `indices`, which may repeat. Throws InvalidArgument when one does not exist.
  SubsetSource(std::shared_ptr<const Source> parent, std::vector<int64_t> indices, std::string name);

  std::string name() const override { return name_; }
  int64_t size() const override { return count_; }
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override;
  void read_all(int64_t index, const SamplePlace& place) const override;
  void read_weights(int64_t index, const SamplePlace& place) const override;
  uint64_t digest() const override;

 private:
  int64_t index_in_parent(int64_t index) const {
    return indices_.empty() ? first_ + index : indices_[static_cast<size_t>(index)];
  }

  int64_t first_ = 0;
  int64_t count_ = 0;
  std::vector<int64_t> indices_;  // empty: the range
  std::string name_;
};

// Some inputs and labels of another source, in an order of its own: places in parent's inputs() and labels().
class SelectedSource : public SourceView {
 public:
  // Throws InvalidArgument without inputs, or for places that the parent does not have or that come twice,
  // or for a parent with more than 32 of either.
  SelectedSource(std::shared_ptr<const Source> parent, std::vector<size_t> inputs,
                 std::vector<size_t> labels);

  Shape input_shape() const override { return inputs().front().shape; }
  Shape label_shape() const override { return labels().front().shape; }
  DType label_dtype() const override { return labels().front().dtype; }
  int64_t classes() const override { return labels().front().classes; }
  std::vector<SampleField> inputs() const override;
  std::vector<SampleField> labels() const override;
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override;
  void read_all(int64_t index, const SamplePlace& place) const override;
  void read_weights(int64_t index, const SamplePlace& place) const override;
  uint64_t digest() const override;

 private:
  static constexpr size_t kMost = 32;  // inputs or labels of the parent
  template <class Use>
  void with_places(const SamplePlace& place, const Use& use) const;

  std::vector<size_t> inputs_, labels_;
  size_t input_count_ = 0, label_count_ = 0;  // of the parent
};

struct TrainValidation {
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> validation;
};

// Keras' validation_split: the last samples, before any shuffling, are held out; training keeps the first
// floor(n (1 - fraction)). Throws InvalidArgument when fraction is not in (0, 1) or a part would be empty.
TrainValidation split_validation(const std::shared_ptr<const Source>& source, double fraction);

}  // namespace rondo
