// Kernels that move elements, and those that join two tensors element by element.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/kernels/kernel.h"

namespace rondo {

// An image (batch, height, width, channels) with zeros around it.
struct PadSpec {
  TensorDesc input;                            // logical shape and the layout the producer offers
  std::array<int64_t, 4> padding{0, 0, 0, 0};  // top, bottom, left, right
};

class PadKernel : public Kernel {
 public:
  virtual const TensorDesc& input() const = 0;
  virtual const TensorDesc& output() const = 0;
  virtual void pad(const Execution& on, const Tensor& in, const Tensor& out) = 0;
  // The reverse, for gradients: the part of `out` that came from `in`.
  virtual void crop(const Execution& on, const Tensor& out, const Tensor& in) = 0;
};

// A canonical tensor with its axes in another order: axis i of the result is axis axes[i] of the input.
struct PermuteSpec {
  TensorDesc input;
  std::vector<int> axes;
  int reversed = -1;  // an axis of the result that runs from the end
};

class PermuteKernel : public Kernel {
 public:
  virtual const TensorDesc& output() const = 0;
  virtual void run(const Execution& on, const Tensor& in, const Tensor& out) = 0;
};
// The specification of the reverse.
PermuteSpec reverse(const PermuteSpec& spec);
// Throws InvalidArgument where the axes are no permutation of the input's.
Shape output_shape(const PermuteSpec& spec);
Shape output_shape(const PadSpec& spec);

enum class Binary : uint8_t { kWeightedSum, kMultiply, kMaximum, kMinimum };

// f(x, y) on tensors that lie alike: a x + b y, x y, the larger, the smaller.
struct BinarySpec {
  TensorDesc desc;
  Binary function = Binary::kMultiply;
  float a = 1.0f, b = 1.0f;
};

class BinaryKernel : public Kernel {
 public:
  virtual const TensorDesc& desc() const = 0;
  // `out` may be x or y.
  virtual void forward(const Execution& on, const Tensor& x, const Tensor& y, const Tensor& out) = 0;
  // x and y may be empty for a weighted sum. Of equal elements, x gets the gradient of maximum and minimum.
  // grad_x may be grad_out.
  virtual void backward(const Execution& on, const Tensor& x, const Tensor& y, const Tensor& grad_out,
                        const Tensor& grad_x, const Tensor& grad_y) = 0;
};

// The penalty of Keras' regularizers on one weight w, p = l1 sum |w| + l2 sum w^2, as its share of a rank
// with `rows` rows: over the ranks of a batch the shares add up to one penalty.
struct PenaltySpec {
  TensorDesc weights;
  int64_t rows = 0;
  double l1 = 0.0, l2 = 0.0;
};

class PenaltyKernel : public Kernel {
 public:
  // *loss_sum (memory of the kernel's device) += rows * p, accumulated in float64 in a fixed order.
  virtual void add_loss(const Execution& on, const Tensor& weights, double* loss_sum) = 0;
  // grad += rows * state->inverse_batch * dp/dw, where d|w|/dw is 0 at 0.
  virtual void add_gradient(const Execution& on, const Tensor& weights, const Tensor& grad) = 0;
};

}  // namespace rondo
