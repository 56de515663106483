// Kernels over elements, rows and columns of arrays in device memory: of float32 or, where the function is a
// template, of any type of element.h. Each call queues on the stream
// and returns. Compiled by nvcc (loops.cu, rows.cu, columns.cu, images.cu); the classes that call them are
// plain C++.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <span>

#include "runtime/base/activations.h"

namespace rondo {
struct LossScale;
struct LossScaling;
struct StepState;
}  // namespace rondo

namespace rondo::cuda {

// ---- elements (loops.cu)

// y = f(x), and dx = dy f'(x) from y, or from x where derived_from_input(f); in place is fine.
template <class T>
void activation_forward(cudaStream_t stream, const ActivationFunction& f, const T* x, T* y, int64_t count);
template <class T>
void activation_backward(cudaStream_t stream, const ActivationFunction& f, const T* dy, const T* kept, T* dx,
                         int64_t count);
// Throws InternalError.
[[noreturn]] void cannot_fuse(Activation f);
// y = f(y + bias) on (rows, channels); bias may be null.
template <class T>
void bias_activation(cudaStream_t stream, Activation f, const T* bias, T* y, int64_t rows, int64_t channels);
template <class T>
void add(cudaStream_t stream, const T* a, const T* b, T* out, int64_t count);

// Between float and a type of element.h.
template <class From, class To>
void convert(cudaStream_t stream, const From* from, To* to, int64_t count);
// Rounds up to kRoundedArrays arrays to T, a type of 16 bits, in one launch.
struct RoundedArray {
  const float* from = nullptr;
  void* to = nullptr;
  int64_t count = 0;
};
constexpr size_t kRoundedArrays = 16;
template <class T>
void round_arrays(cudaStream_t stream, std::span<const RoundedArray> arrays);

// `runs` stretches of `length` elements: stretch r goes from `from + r * from_stride` to `to + r *
// to_stride`.
struct Runs {
  int64_t runs = 0, length = 0, from_stride = 0, to_stride = 0;
};
template <class T>
void copy_runs(cudaStream_t stream, const T* from, T* to, const Runs& runs);
// to[i][j] = from[j][i], `from` being (rows, columns). To: From, or float.
template <class From, class To>
void transpose(cudaStream_t stream, const From* from, To* to, int64_t rows, int64_t columns);

struct DropoutArguments {
  int64_t rows = 0, elements = 0;  // of one row
  uint32_t stream = 0;
  uint32_t threshold = 0;  // of 24 random bits: kept when not below
  float scale = 1.0f;
};
// Draws the mask (one byte an element) and applies it.
template <class T>
void dropout_forward(cudaStream_t stream, const DropoutArguments& arguments, const StepState* state,
                     const T* x, uint8_t* mask, T* y);
template <class T>
void apply_mask(cudaStream_t stream, const T* x, const uint8_t* mask, float scale, T* y, int64_t count);

// The two halves of a LossScaleKernel.
void scale_step(cudaStream_t stream, const LossScale* scale, StepState* state);
void decide_step(cudaStream_t stream, const LossScaling& scaling, const double* square_sums, int64_t count,
                 LossScale* scale, StepState* state);
void fill_tail(cudaStream_t stream, const double* sums, int64_t count, const StepState* state, float* tail);

// ---- rows (rows.cu)

// *out = scale * (parts[0] + ... + parts[count - 1]), in an order that count decides.
void sum_parts(cudaStream_t stream, const double* parts, int64_t count, double scale, double* out);

void softmax_forward(cudaStream_t stream, const float* x, float* y, int64_t rows, int64_t classes);
void softmax_backward(cudaStream_t stream, const float* y, const float* dy, float* dx, int64_t rows,
                      int64_t classes);

// ---- columns (columns.cu): sums over the rows of (rows, channels)

// How many partial sums a column is cut into: a function of the shape alone.
int64_t column_parts(int64_t rows, int64_t channels);
// out[c] = sum over rows; `parts` has room for column_parts() * channels doubles.
template <class T>
void column_sums(cudaStream_t stream, const T* x, int64_t rows, int64_t channels, double* parts, float* out);

struct NormArrays {
  int64_t rows = 0, channels = 0;
  float epsilon = 0.0f;
  const float* gamma = nullptr;  // may be null: 1
  const float* beta = nullptr;   // may be null: 0
  float* mean = nullptr;         // of the batch, kept for backward
  float* scale = nullptr;        // 1 / sqrt(variance + epsilon) of the batch
  double* parts = nullptr;       // room for 2 * column_parts() * channels doubles
};
struct MovingStatistics {
  float* mean = nullptr;
  float* variance = nullptr;
  float momentum = 0.0f;
  float correction = 1.0f;  // of the batch variance
};
// Writes norm.mean and norm.scale of the batch, and moves the moving statistics.
template <class T>
void batch_norm_statistics(cudaStream_t stream, const NormArrays& norm, const MovingStatistics& moving,
                           const T* x);
template <class T>
void batch_norm_training(cudaStream_t stream, const NormArrays& norm, const MovingStatistics& moving,
                         const T* x, T* y);
template <class T>
void batch_norm_inference(cudaStream_t stream, const NormArrays& norm, const float* mean,
                          const float* variance, const T* x, T* y);
// d_gamma and d_beta may be null.
template <class T>
void batch_norm_backward(cudaStream_t stream, const NormArrays& norm, const T* x, const T* dy, T* dx,
                         float* d_gamma, float* d_beta);

// ---- normalization, addition and ReLU (norm_relu.cu): y = max(0, norm(x) + addend); no addend: null

// From norm.mean and norm.scale.
template <class T>
void norm_relu(cudaStream_t stream, const NormArrays& norm, const T* x, const T* addend, T* y);
template <class T>
void norm_relu_inference(cudaStream_t stream, const NormArrays& norm, const float* mean,
                         const float* variance, const T* x, const T* addend, T* y);
template <class T>
struct NormReluGradients {
  T* x = nullptr;          // may be dy where there is no addend
  T* addend = nullptr;     // null where there is none; may be dy
  float* gamma = nullptr;  // these may be null
  float* beta = nullptr;
};
// `y` is read where there is an addend.
template <class T>
void norm_relu_backward(cudaStream_t stream, const NormArrays& norm, const T* x, const T* y, const T* dy,
                        const NormReluGradients<T>& gradients);

// ---- images (images.cu): (batch, height, width, channels)

struct WindowGeometry {
  int64_t batch = 0, height = 0, width = 0, channels = 0;
  int64_t out_height = 0, out_width = 0;
  int64_t window_height = 1, window_width = 1;
  int64_t stride_height = 1, stride_width = 1;
  int64_t dilation_height = 1, dilation_width = 1;
  int64_t top = 0, left = 0;  // padding
};
// `where` (may be null) keeps the position of each maximum within its window; the first of equal ones.
template <class T>
void max_pool_forward(cudaStream_t stream, const WindowGeometry& g, const T* x, T* y, uint16_t* where);
template <class T>
void max_pool_backward(cudaStream_t stream, const WindowGeometry& g, const T* dy, const uint16_t* where,
                       T* dx);
// Divides by the real cells only.
template <class T>
void average_pool_forward(cudaStream_t stream, const WindowGeometry& g, const T* x, T* y);
template <class T>
void average_pool_backward(cudaStream_t stream, const WindowGeometry& g, const T* dy, T* dx);

// Copies an image into a larger one, zeros around it, and back.
struct Padding {
  int64_t batch = 0, height = 0, width = 0, channels = 0;  // of the smaller image
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};
template <class T>
void pad_image(cudaStream_t stream, const Padding& padding, const T* x, T* padded);
template <class T>
void crop_image(cudaStream_t stream, const Padding& padding, const T* padded, T* x);

// Convolution in groups without a library: weights (filters, window height, window width, channels / groups),
// that is, in this backend's kernel layout. Made for few channels in a group, right for any.
struct GroupedConv {
  WindowGeometry window;  // its channels: of the input
  int64_t filters = 0, groups = 1;
};
template <class T>
void grouped_conv_forward(cudaStream_t stream, const GroupedConv& g, const T* x, const T* w, T* y);
template <class T>
void grouped_conv_input(cudaStream_t stream, const GroupedConv& g, const T* dy, const T* w, T* dx);
// `parts` has room for grouped_conv_parts() times as many doubles as there are weights.
int64_t grouped_conv_parts(const GroupedConv& g);
template <class T>
void grouped_conv_weights(cudaStream_t stream, const GroupedConv& g, const T* x, const T* dy, double* parts,
                          float* dw);

}  // namespace rondo::cuda
