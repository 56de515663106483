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
class WeightedSource : public SourceView {
 public:
  // Weights for each sample, times the parent's, of the losses of every label. Either one for each sample, or
  // as many as a leading part of the label's extents has elements: for labels of shape (T) or (T, C) also T,
  // one for each time step (Keras' temporal weights). Throws InvalidArgument when their number is neither, or
  // for weights that are negative or not finite.
  WeightedSource(std::shared_ptr<const Source> parent, std::vector<float> sample_weights);
  // The same for each label by itself; empty: 1. Throws InvalidArgument also when there is not one entry for
  // each label.
  WeightedSource(std::shared_ptr<const Source> parent, std::vector<std::vector<float>> by_label);
  // Weights by class, times the parent's. A sample's class is its label, or the place of the largest of
  // several. As in tf.keras the classes must be 0 to C - 1 without a gap; `classes` is how many there are in
  // the data, which must not be more. Throws InvalidArgument that names the class that is missing or too
  // large, and for parents with several labels, or with labels of more than one axis.
  WeightedSource(std::shared_ptr<const Source> parent, const std::map<int64_t, double>& class_weights,
                 int64_t classes);

  std::vector<SampleField> labels() const override { return labels_; }
  void read_weights(int64_t index, const SamplePlace& place) const override;
  uint64_t digest() const override;

 private:
  std::vector<SampleField> labels_;
  std::vector<std::vector<float>> by_sample_;  // for each label; empty: 1
  std::vector<int64_t> per_sample_;            // how many weights of a label a sample has
  std::vector<float> by_class_;
};

}  // namespace rondo
