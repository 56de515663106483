#pragma once

#include <cstdint>

#include "runtime/kernels/kernel.h"

namespace rondo {

// Labels are float32 of the prediction's shape, but for the sparse one: int32 class numbers, without the last
// axis. Formulas in loss_rules.h and, of those that look at whole rows, here.
enum class Loss : uint8_t {
  kCategoricalCrossentropy,  // rows of labels need not sum to 1; the prediction is divided by its sum, cut
  kSparseCategoricalCrossentropy,  // the logarithms of the cut prediction act as logits
  kBinaryCrossentropy,
  kMeanSquaredError,
  kMeanAbsoluteError,
  kMeanAbsolutePercentageError,
  kMeanSquaredLogarithmicError,
  kHinge,
  kSquaredHinge,
  kCategoricalHinge,  // max(max((1 - y) x) - sum(y x) + 1, 0); equal maxima share the gradient
  kKlDivergence,
  kPoisson,
  kLogCosh,
  kHuber,
  kCosineSimilarity,  // -sum(x y) / (|x| |y|), squared norms being at least 1e-12
};

// A loss over the rows of a canonical prediction (rows, ..., classes), formulas of tf.keras 2.10 with
// epsilon = 1e-7. With from_logits the prediction stands before its softmax (categorical) or sigmoid
// (binary), which is exact and needs no clipping.
struct LossSpec {
  Loss loss = Loss::kSparseCategoricalCrossentropy;
  TensorDesc prediction;
  bool from_logits = false;
  float label_smoothing = 0.0f;  // of categorical and binary crossentropy: y (1 - a) + a / classes, or a / 2
  float delta = 1.0f;            // of huber
  // Where a row holds several predictions (axes between the first and the last) its loss is their mean, or
  // with sum_positions their sum.
  bool sum_positions = false;
  double gradient_scale = 1.0;  // the gradient is that of so many times the loss; *loss_sum is not
};

class LossKernel : public Kernel {
 public:
  virtual const TensorDesc& label() const = 0;
  // *loss_sum (memory of the kernel's device) = sum over the rows of the row's loss, each times its weight
  // where there are `weights`, float32 (rows), or (rows, ...) with one for each of a row's predictions or for
  // each of an equal number of them that follow each other. A class label out of range throws InvalidArgument
  // where kernels run in the call, and elsewhere makes its row's loss NaN, its gradient zero. grad (when not
  // empty) = d loss_sum / d prediction * state->inverse_batch: summed over ranks this is the gradient of the
  // mean over the global batch.
  virtual void run(const Execution& on, const Tensor& prediction, const Tensor& label, double* loss_sum,
                   const Tensor& grad, const Tensor& weights = {}) = 0;
};

enum class Metric : uint8_t {
  kCategoricalAccuracy,        // argmax of the label row = argmax of the prediction row; first of equal ones
  kSparseCategoricalAccuracy,  // label = argmax of the prediction row
  kBinaryAccuracy,             // mean over the last axis of label = (prediction > threshold)
  kMeanSquaredError,
  kMeanAbsoluteError,
  kTopKCategoricalAccuracy,        // fewer than k classes have more than that of the label's maximum
  kSparseTopKCategoricalAccuracy,  // ... than the label; never with a prediction that is not finite
  // Over single elements, a label being positive where it is not 0:
  kConfusion,  // three sums: those above the threshold and positive, above and not, positive and not above
  kHistogram,  // of predictions in [0, 1], twice `thresholds` sums: the positive ones in bucket
               // max(ceil(p (thresholds - 1)) - 1, 0), then the others
  kOnes,       // 1: with weights, their sum, a row's being their mean
};

struct MetricSpec {
  Metric metric = Metric::kSparseCategoricalAccuracy;
  TensorDesc prediction;
  bool from_logits = false;  // binary accuracy: the prediction stands before its sigmoid
  float threshold = 0.5f;    // of binary accuracy and kConfusion, in probabilities
  int64_t k = 5;             // of top-k accuracy
  int64_t thresholds = 200;  // of kHistogram
};

// How many sums a metric has.
constexpr int64_t sums_of(Metric metric, int64_t thresholds) {
  return metric == Metric::kHistogram ? 2 * thresholds : metric == Metric::kConfusion ? 3 : 1;
}

class MetricKernel : public Kernel {
 public:
  // sums (memory of the kernel's device) = sums over the rows; where a row holds several predictions, their
  // mean, but for kConfusion and kHistogram, which count elements. What is summed is times its weight where
  // there are `weights`, as those of a loss.
  virtual void run(const Execution& on, const Tensor& prediction, const Tensor& label, double* sums,
                   const Tensor& weights = {}) = 0;
};

}  // namespace rondo
