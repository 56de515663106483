#pragma once

#include <cstdint>

#include "runtime/kernels/kernel.h"

namespace rondo {

enum class Loss : uint8_t {
  kCategoricalCrossentropy,        // labels float32 (rows, classes); rows need not sum to 1
  kSparseCategoricalCrossentropy,  // labels int32 (rows)
  kBinaryCrossentropy,             // labels float32, shape of the prediction; mean over the last axis
  kMeanSquaredError,               // labels float32, shape of the prediction; mean over the last axis
};

// A loss over the rows of a canonical prediction (rows, ..., classes), formulas of tf.keras 2.10 with
// epsilon = 1e-7. With from_logits the prediction stands before its softmax (categorical) or sigmoid
// (binary), which is exact and needs no clipping.
struct LossSpec {
  Loss loss = Loss::kSparseCategoricalCrossentropy;
  TensorDesc prediction;
  bool from_logits = false;
};

class LossKernel : public Kernel {
 public:
  virtual const TensorDesc& label() const = 0;
  // *loss_sum (memory of the kernel's device) = sum over the rows of the row's loss. A class label out of
  // range throws InvalidArgument where kernels run in the call, and elsewhere makes its row's loss NaN, its
  // gradient zero. grad (when not empty) = d loss_sum / d prediction * state->inverse_batch: summed over
  // ranks this is the gradient of the mean over the global batch.
  virtual void run(const Execution& on, const Tensor& prediction, const Tensor& label, double* loss_sum,
                   const Tensor& grad) = 0;
};

enum class Metric : uint8_t {
  kCategoricalAccuracy,        // argmax of the label row = argmax of the prediction row; first of equal ones
  kSparseCategoricalAccuracy,  // label = argmax of the prediction row
  kBinaryAccuracy,             // mean over the last axis of label = (prediction > 0.5)
  kMeanSquaredError,
  kMeanAbsoluteError,
};

struct MetricSpec {
  Metric metric = Metric::kSparseCategoricalAccuracy;
  TensorDesc prediction;
  bool from_logits = false;  // binary accuracy compares with 0 instead of 0.5
};

class MetricKernel : public Kernel {
 public:
  // *sum (memory of the kernel's device) = sum over the rows.
  virtual void run(const Execution& on, const Tensor& prediction, const Tensor& label, double* sum) = 0;
};

}  // namespace rondo
