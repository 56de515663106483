// Kernels that spread a tensor over axes along which it has one element.
#pragma once

#include "runtime/kernels/kernel.h"

namespace rondo {

// A canonical float32 tensor repeated along axes: `input` and `output` have the same number of axes, and each
// extent of the input is the output's or 1.
struct BroadcastSpec {
  Shape input, output;
};

class BroadcastKernel : public Kernel {
 public:
  virtual void spread(const Execution& on, const Tensor& in, const Tensor& out) = 0;
  // The reverse, for gradients: in = the sums of `out` over the repeated axes, in float64 in a fixed order.
  virtual void sum(const Execution& on, const Tensor& out, const Tensor& in) = 0;
};

// PReLU (He et al. 2015) on canonical float32: x where x > 0, else alpha x. `alpha` is shaped like a sample
// of `input` whose shared axes have the extent 1.
struct PreluSpec {
  Shape input;  // (rows, ...)
  Shape alpha;
};

class PreluKernel : public Kernel {
 public:
  virtual void forward(const Execution& on, const Tensor& in, const Tensor& alpha, const Tensor& out) = 0;
  // grad_alpha sums over rows and shared axes in float64 in a fixed order; it may be empty, as may grad_in.
  virtual void backward(const Execution& on, const Tensor& in, const Tensor& alpha, const Tensor& grad_out,
                        const Tensor& grad_in, const Tensor& grad_alpha) = 0;
};

// Throw InvalidArgument for shapes that do not fit.
void check(const BroadcastSpec& spec);
void check(const PreluSpec& spec);

}  // namespace rondo
