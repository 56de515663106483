#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/activations.h"
#include "runtime/kernels/kernel.h"

namespace rondo {

// Element-wise kernels read and write one layout, the one they were made for, and may run in place.

class ActivationKernel : public Kernel {
 public:
  virtual const TensorDesc& desc() const = 0;
  virtual void forward(const Execution& on, const Tensor& in, const Tensor& out) = 0;
  // grad_in = grad_out * f'(x), from the forward result; from the forward input where derived_from_input(f).
  virtual void backward(const Execution& on, const Tensor& kept, const Tensor& grad_out,
                        const Tensor& grad_in) = 0;
};

// Softmax over the last axis of a canonical tensor.
class SoftmaxKernel : public Kernel {
 public:
  virtual const TensorDesc& desc() const = 0;
  virtual void forward(const Execution& on, const Tensor& in, const Tensor& out) = 0;
  virtual void backward(const Execution& on, const Tensor& out, const Tensor& grad_out,
                        const Tensor& grad_in) = 0;
};

// Inverted dropout: an element is kept with probability 1 - rate and then divided by it. Whether it is kept
// is a function of (seed, stream, step, row in the global batch, element of the sample in canonical order)
// alone: not of layout, rank or thread. Backward drops what the last forward dropped. The kernel's desc() may
// be canonical where `desc` has a layout that it cannot walk.
struct DropoutSpec {
  TensorDesc desc;
  float rate = 0.5f;    // in [0, 1)
  uint32_t stream = 0;  // distinguishes the dropout layers of a model
};

class DropoutKernel : public Kernel {
 public:
  virtual const TensorDesc& desc() const = 0;
  virtual void forward(const Execution& on, const Tensor& in, const Tensor& out) = 0;
  virtual void backward(const Execution& on, const Tensor& grad_out, const Tensor& grad_in) = 0;
};

// out = a + b; out may be a or b.
class AddKernel : public Kernel {
 public:
  virtual const TensorDesc& desc() const = 0;
  virtual void run(const Execution& on, const Tensor& a, const Tensor& b, const Tensor& out) = 0;
};

// Joins canonical tensors along one axis; `split` is the reverse, for gradients.
struct ConcatSpec {
  std::vector<TensorDesc> inputs;
  int axis = -1;  // of the whole shape, batch included; negative counts from the end
};

class ConcatKernel : public Kernel {
 public:
  virtual const TensorDesc& input(int index) const = 0;
  virtual const TensorDesc& output() const = 0;
  virtual void join(const Execution& on, const std::vector<Tensor>& inputs, const Tensor& out) = 0;
  virtual void split(const Execution& on, const Tensor& out, const std::vector<Tensor>& inputs) = 0;
};

// Copies a tensor into another layout of the same shape; or, on backends that compute in 16 bits, a canonical
// one of float32 into bfloat16 or float16 (to nearest, ties to even) or back.
class ReorderKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const Tensor& from, const Tensor& to) = 0;
};

// Rounds float32 parameters to 16 bits for the kernels of a pass, many at once: to[i] = from[i], whose
// elements keep their order.
class RoundKernel : public Kernel {
 public:
  virtual void run(const Execution& on, std::span<const Tensor> from, std::span<const Tensor> to) = 0;
};

}  // namespace rondo
