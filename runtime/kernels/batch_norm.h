#pragma once

#include "runtime/kernels/kernel.h"

namespace rondo {

// Batch normalization over all axes but the last, as in Keras: y = gamma (x - mean) / sqrt(variance +
// epsilon) + beta with the biased batch variance in training and the moving statistics in inference. All
// parameters are (channels).
//
// Training also updates the moving statistics: moving = momentum moving + (1 - momentum) batch, where the
// variance is corrected by n / (n - 1) for images (rank 4) and biased otherwise (tf.keras), n = elements per
// channel.
struct BatchNormSpec {
  TensorDesc input;
  float momentum = 0.99f;
  float epsilon = 1e-3f;
  bool scale = true;   // gamma is used
  bool center = true;  // beta is used
  Mode mode = Mode::kTraining;
};

struct BatchNormParameters {
  Tensor gamma;  // empty when not used
  Tensor beta;
  Tensor moving_mean;
  Tensor moving_variance;
};

// Keeps the batch statistics from a training forward until its backward.
class BatchNormKernel : public Kernel {
 public:
  virtual const TensorDesc& input() const = 0;  // input, output and their gradients lie alike
  virtual const TensorDesc& output() const = 0;
  virtual void forward(const Execution& on, const Tensor& in, const BatchNormParameters& parameters,
                       const Tensor& out) = 0;
  virtual void backward(const Execution& on, const Tensor& in, const Tensor& grad_out,
                        const BatchNormParameters& parameters, const Tensor& grad_in,
                        const Tensor& grad_gamma, const Tensor& grad_beta) = 0;
};

// Batch normalization with what residual networks put behind it, in fewer passes over memory:
// y = relu(norm(x) + addend), where the addend may be left out.
struct NormReluSpec {
  BatchNormSpec norm;
  bool add = false;
};

// Keeps the batch statistics as BatchNormKernel does.
class NormReluKernel : public Kernel {
 public:
  virtual const TensorDesc& desc() const = 0;  // input, addend, output and their gradients lie alike
  // `addend` is empty where spec.add is false. `out` may be `addend`.
  virtual void forward(const Execution& on, const Tensor& in, const Tensor& addend,
                       const BatchNormParameters& parameters, const Tensor& out) = 0;

  struct Gradients {
    Tensor in;      // may be the output's where spec.add is false
    Tensor addend;  // may be the output's; empty where spec.add is false
    Tensor gamma;   // empty when not used
    Tensor beta;
  };
  // `out` of the forward pass; it is looked at where spec.add is true.
  virtual void backward(const Execution& on, const Tensor& in, const Tensor& out, const Tensor& grad_out,
                        const BatchNormParameters& parameters, const Gradients& gradients) = 0;
};

}  // namespace rondo
