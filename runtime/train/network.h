#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernels/kernel.h"
#include "runtime/tensor/parameter.h"
#include "runtime/tensor/tensor.h"

namespace rondo {

// One rank's rows of a step, on the device.
struct Batch {
  int64_t rows = 0;
  std::vector<Tensor> inputs;  // each (rows, ...), canonical float32
  Tensor label;                // (rows, ...) as the loss wants it: int32 classes or float32
};

// What a trainer needs from a model. models/graph implements it; so can any other code.
class Network {
 public:
  virtual ~Network() = default;

  // In graph order; the same objects for the network's life. Trainable and non-trainable ones.
  virtual const ParameterList& parameters() = 0;
  // Names of the metrics behind the loss, as reported ("accuracy").
  virtual const std::vector<std::string>& metric_names() = 0;

  // Makes everything ready for batches of `rows` in `mode`, so that steps allocate nothing. Slow at first,
  // then free.
  virtual void prepare(int64_t rows, Mode mode) = 0;

  // Runs over the rows (never 0) and gives sums over them: sums[0] the loss, then each metric. The sums are
  // valid on return. In training `state` keys dropout and scales gradients.
  virtual void forward(const Batch& batch, Mode mode, const StepState& state, std::span<double> sums) = 0;
  // After a training forward: writes each trainable parameter's gradient (of the sum of the row losses, times
  // state.inverse_batch) and tells the sink at once.
  virtual void backward(GradSink& sink) = 0;
  // Inference without labels: writes the output (rows, ...) in canonical order into `out`.
  virtual void predict(const Batch& batch, std::span<float> out) = 0;
  // Extents of the output behind the batch axis.
  virtual Shape output_shape() const = 0;
};

}  // namespace rondo
