// Kernels of the layers that work on sequences: embeddings, normalization of rows, products of many matrices,
// and the gates of recurrent layers. All tensors are canonical float32.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/kernels/kernel.h"

namespace rondo {

// Rows of a table (entries, width) by number: out[i] = table[indices[i]]. The numbers come as float32, whole
// and at least 0, as models take their inputs.
struct EmbeddingSpec {
  TensorDesc indices;  // any shape
  int64_t entries = 0;
  int64_t width = 0;
};

class EmbeddingKernel : public Kernel {
 public:
  virtual const TensorDesc& output() const = 0;  // the shape of the indices, then width
  // A number that is no row of the table throws InvalidArgument where kernels run in the call, and elsewhere
  // gives a row of NaN.
  virtual void forward(const Execution& on, const Tensor& indices, const Tensor& table,
                       const Tensor& out) = 0;
  // grad_table = the sum of the gradients of each row's uses, added in the order of the indices.
  virtual void backward(const Execution& on, const Tensor& indices, const Tensor& grad_out,
                        const Tensor& grad_table) = 0;
};

// y = gamma (x - mean) / sqrt(variance + epsilon) + beta over the last axis, with the biased variance.
// gamma and beta are (channels).
struct LayerNormSpec {
  TensorDesc input;
  float epsilon = 1e-3f;
  bool scale = true;   // gamma is used
  bool center = true;  // beta is used
  Mode mode = Mode::kTraining;
};

// Keeps each row's statistics from a training forward until its backward.
class LayerNormKernel : public Kernel {
 public:
  virtual const TensorDesc& desc() const = 0;
  // gamma and beta are empty when not used; so are their gradients.
  virtual void forward(const Execution& on, const Tensor& in, const Tensor& gamma, const Tensor& beta,
                       const Tensor& out) = 0;
  virtual void backward(const Execution& on, const Tensor& in, const Tensor& gamma, const Tensor& grad_out,
                        const Tensor& grad_in, const Tensor& grad_gamma, const Tensor& grad_beta) = 0;
};

// `batch` products out (rows, columns) = alpha a (rows, inner) b (inner, columns), one behind the other in
// memory. `transpose_a`: each a lies as (inner, rows); `transpose_b`: each b lies as (columns, inner).
struct MatmulSpec {
  int64_t batch = 1;
  int64_t rows = 0, columns = 0, inner = 0;
  bool transpose_a = false, transpose_b = false;
  float alpha = 1.0f;
  bool tf32 = false;  // a GPU may round a and b to 10 bits
};

class MatmulKernel : public Kernel {
 public:
  virtual void run(const Execution& on, const Tensor& a, const Tensor& b, const Tensor& out) = 0;
};

// One time step of a recurrent layer behind its products, for `rows` samples and `units`. `input` is the
// input's product and `recurrent` the last state's, with a column for each gate and unit.
enum class Recurrence : uint8_t { kLstm, kGru, kGruResetBefore };
struct GateSpec {
  Recurrence kind = Recurrence::kLstm;
  int64_t rows = 0, units = 0;
  bool hard = false;  // gates by hard_sigmoid, clip(0.2 x + 0.5, 0, 1), as in Keras until 2.2, not by sigmoid
};
// Gates of a kind, and what is kept of a step for its gradient, per unit.
constexpr int64_t gate_count(Recurrence kind) {
  return kind == Recurrence::kLstm ? 4 : 3;
}

// LSTM, with gates i, f, c, o (Keras' order) of z = input + recurrent:
//   i, f, o = sigmoid(z), g = tanh(z_c);  c = f c_last + i g;  h = o tanh(c).  Keeps i, f, g, o.
// GRU with reset_after, with gates z, r, h of x = input and y = recurrent:
//   z, r = sigmoid(x + y), g = tanh(x_h + r y_h);  h = z h_last + (1 - z) g.  Keeps z, r, g, y_h.
// GRU with the reset gate before the product: reset() takes y, the product of h_last, and gives r h_last;
// then forward() takes y, the product of that, of which it reads y_h:
//   z, r = sigmoid(x + y), g = tanh(x_h + y_h);  h = z h_last + (1 - z) g.  Keeps z, r, g.
// Where gates are hard, hard_sigmoid stands for sigmoid. A row that the mask leaves out passes h_last and
// c_last on.
struct GateState {
  const float* input = nullptr;
  const float* recurrent = nullptr;
  const float* last_output = nullptr;   // h_last; GRU, and with a mask
  const float* last_dropped = nullptr;  // what r is multiplied with, where it is not h_last; GRU reset before
  const float* last_cell = nullptr;     // c_last; LSTM
  float* kept = nullptr;                // (rows, 4 units)
  float* cell = nullptr;                // c; LSTM
  float* output = nullptr;              // h
  float* reset = nullptr;               // r h_last; GRU reset before
  const float* mask = nullptr;          // may be null; of row i: mask[i mask_stride], 0 or 1
  int64_t mask_stride = 1;
};
// The same step backward, from the gradients of h: `grad_output` (may be null: none) plus `grad_next`, what
// the next time step sent. `grad_cell` is the gradient of c, in and out. Writes the gradients of `input` and
// `recurrent` (for an LSTM they are one: grad_recurrent is null), and for a GRU adds nothing but writes the
// part of h_last's gradient that does not go through the product into `grad_last` (with a mask an LSTM does
// so, too). A GRU with the reset gate before the product has two steps: backward_candidate() writes the
// gradient of its second product into `grad_candidate`; backward() is given what that product sends to r
// h_last as `grad_reset`, and turns it into what goes to the second factor.
struct GateGradient {
  const float* kept = nullptr;
  const float* last_output = nullptr;
  const float* last_cell = nullptr;
  const float* cell = nullptr;
  const float* grad_output = nullptr;
  const float* grad_next = nullptr;
  float* grad_cell = nullptr;
  float* grad_input = nullptr;
  float* grad_recurrent = nullptr;
  float* grad_last = nullptr;
  const float* last_dropped = nullptr;
  float* grad_candidate = nullptr;  // (rows, 3 units)
  float* grad_reset = nullptr;      // (rows, units); in and out
  const float* mask = nullptr;
  int64_t mask_stride = 1;
};

class GateKernel : public Kernel {
 public:
  virtual void forward(const Execution& on, const GateState& state) = 0;
  virtual void backward(const Execution& on, const GateGradient& gradient) = 0;
  // A GRU with the reset gate before the product: the first half of a step, forward and backward.
  virtual void reset(const Execution& on, const GateState& state) = 0;
  virtual void backward_candidate(const Execution& on, const GateGradient& gradient) = 0;
};

// Throw InvalidArgument where a specification makes no sense.
Shape output_shape(const EmbeddingSpec& spec);
void check(const LayerNormSpec& spec);
void check(const MatmulSpec& spec);
void check(const GateSpec& spec);

}  // namespace rondo
