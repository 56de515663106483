#pragma once

#include <cstdint>
#include <optional>
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
  std::vector<Tensor> labels;  // each (rows, ...) as its loss wants it: int32 classes or float32
  // Of each label: (rows) or (rows, ...) float32, of the losses of rows or of places in them; an empty
  // tensor, or none: all 1.
  std::vector<Tensor> weights = {};
};

// What a trainer needs from a model. models/graph implements it; so can any other code.
class Network {
 public:
  virtual ~Network() = default;

  // In graph order; the same objects for the network's life. Trainable and non-trainable ones.
  virtual const ParameterList& parameters() = 0;
  // Names of the metrics behind the loss, as reported ("accuracy").
  virtual const std::vector<std::string>& metric_names() = 0;

  // How many sums over rows a pass writes: one for the loss, and behind it what the metrics need.
  virtual size_t sum_count() { return 1 + metric_names().size(); }
  // How many of them, the first ones, are losses: more than one where outputs have losses of their own.
  virtual size_t loss_count() { return 1; }
  // Loss and metrics of `rows` rows from the sums over them.
  virtual void values_of(std::span<const double> sums, double rows, std::span<double> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = sums[i] / rows;
  }
  // Whether the loss of a batch is the sum over its rows, and not their mean.
  virtual bool sums_loss() { return false; }

  // Makes everything ready for batches of `rows` in `mode`, so that steps allocate nothing. Slow at first,
  // then free. No pass may be underway.
  virtual void prepare(int64_t rows, Mode mode) = 0;

  // Passes are work queued on on.stream; what they are given is memory of the device, but for the structs
  // that describe it. All passes of a network go to one stream, or to several that are ordered by the caller.
  //
  // Runs over the rows (never 0) and writes the sum_count() sums over them. In training
  // on.state keys dropout and scales gradients; `batch` itself stays until backward() has returned.
  virtual void forward(const Execution& on, const Batch& batch, Mode mode, std::span<double> sums) = 0;
  // After a training forward: writes each trainable parameter's gradient (of the sum of the row losses, times
  // state.inverse_batch) and tells the sink as soon as the work that makes it final is queued.
  virtual void backward(const Execution& on, GradSink& sink) = 0;
  // Behind the optimizer's update in a training step, on every rank: brings weights back to what their
  // constraints allow, alike on all ranks.
  virtual void constrain(const Execution& /*on*/) {}
  // Of networks whose training passes can be captured and replayed: over batches of the same rows in the same
  // places they queue the same work every time, and what changes from step to step they read on the device,
  // from on.state. Gives the memory that the passes use besides parameters and batches, and that the network
  // may let go of; replays keep it. Nothing: they are queued anew in every step.
  virtual std::optional<std::vector<Buffer>> replay_memory() { return std::nullopt; }
  // Inference without labels: writes each output (rows, ...) in canonical order into its place in `outputs`,
  // device memory or memory of the host that copies of the stream reach.
  virtual void predict(const Execution& on, const Batch& batch,
                       std::span<const std::span<float>> outputs) = 0;
  // Extents of each output behind the batch axis.
  virtual std::vector<Shape> output_shapes() const = 0;
};

}  // namespace rondo
