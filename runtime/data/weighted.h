#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/source.h"

namespace rondo {

// Samples of another source, with weights for their losses. Weights do not change what a mean divides by.
class WeightedSource : public Source {
 public:
  // One weight for each sample, times the parent's. Throws InvalidArgument when their number is not the
  // parent's, or for weights that are negative or not finite.
  WeightedSource(std::shared_ptr<const Source> parent, std::vector<float> sample_weights);
  // Weights by class, times the parent's. A sample's class is its label, or the place of the largest of
  // several. As in tf.keras the classes must be 0 to C - 1 without a gap; `classes` is how many there are in
  // the data, which must not be more. Throws InvalidArgument that names the class that is missing or too
  // large.
  WeightedSource(std::shared_ptr<const Source> parent, const std::map<int64_t, double>& class_weights,
                 int64_t classes);

  std::string name() const override { return parent_->name(); }
  int64_t size() const override { return parent_->size(); }
  Shape input_shape() const override { return parent_->input_shape(); }
  Shape label_shape() const override { return parent_->label_shape(); }
  DType label_dtype() const override { return parent_->label_dtype(); }
  int64_t classes() const override { return parent_->classes(); }
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override {
    parent_->read(index, input, label);
  }
  uint64_t digest() const override;
  bool weighted() const override { return true; }
  float weight(int64_t index, std::span<const std::byte> label) const override;

 private:
  std::shared_ptr<const Source> parent_;
  std::vector<float> by_sample_;
  std::vector<float> by_class_;
};

}  // namespace rondo
