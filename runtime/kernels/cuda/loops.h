// Kernels over elements, rows and columns of float32 arrays in device memory. Each call queues on the stream
// and returns. Compiled by nvcc (loops.cu, rows.cu, columns.cu, images.cu); the classes that call them are
// plain C++.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "runtime/base/functors.h"

namespace rondo {
struct LossScale;
struct LossScaling;
struct StepState;
enum class Loss : uint8_t;
enum class Metric : uint8_t;
}  // namespace rondo

namespace rondo::cuda {

// ---- elements (loops.cu)

// y = f(x) and dx = dy f'(x) from y; in place is fine.
void activation_forward(cudaStream_t stream, Activation f, const float* x, float* y, int64_t count);
void activation_backward(cudaStream_t stream, Activation f, const float* dy, const float* y, float* dx,
                         int64_t count);
// y = f(y + bias) on (rows, channels); bias may be null.
void bias_activation(cudaStream_t stream, Activation f, const float* bias, float* y, int64_t rows,
                     int64_t channels);
void add(cudaStream_t stream, const float* a, const float* b, float* out, int64_t count);

// `runs` stretches of `length` floats: stretch r goes from `from + r * from_stride` to `to + r * to_stride`.
struct Runs {
  int64_t runs = 0, length = 0, from_stride = 0, to_stride = 0;
};
void copy_runs(cudaStream_t stream, const float* from, float* to, const Runs& runs);
// to[i][j] = from[j][i], `from` being (rows, columns).
void transpose(cudaStream_t stream, const float* from, float* to, int64_t rows, int64_t columns);

struct DropoutArguments {
  int64_t rows = 0, elements = 0;  // of one row
  uint32_t stream = 0;
  uint32_t threshold = 0;  // of 24 random bits: kept when not below
  float scale = 1.0f;
};
// Draws the mask (one byte an element) and applies it.
void dropout_forward(cudaStream_t stream, const DropoutArguments& arguments, const StepState* state,
                     const float* x, uint8_t* mask, float* y);
void apply_mask(cudaStream_t stream, const float* x, const uint8_t* mask, float scale, float* y,
                int64_t count);

struct UpdateArrays {
  const float* gradients = nullptr;
  float* weights = nullptr;
  float* slots[2] = {nullptr, nullptr};
  int64_t count = 0;
};
// Each gradient enters as clip(g * state->gradient_scale) to [-limit, limit].
void sgd_update(cudaStream_t stream, const SgdUpdate& rule, float limit, const StepState* state,
                const UpdateArrays& arrays);
void rmsprop_update(cudaStream_t stream, const RmsPropUpdate& rule, float limit, const StepState* state,
                    const UpdateArrays& arrays);
void adam_update(cudaStream_t stream, const AdamUpdate& rule, float limit, const StepState* state,
                 const UpdateArrays& arrays);

void clip_norm(cudaStream_t stream, double limit, const double* square_sums, int64_t count, StepState* state,
               double* norm);
// The two halves of a LossScaleKernel.
void scale_step(cudaStream_t stream, const LossScale* scale, StepState* state);
void decide_step(cudaStream_t stream, const LossScaling& scaling, const double* square_sums, int64_t count,
                 LossScale* scale, StepState* state);
void fill_tail(cudaStream_t stream, const double* sums, int64_t count, const StepState* state, float* tail);

// ---- rows (rows.cu)

// *out = scale * (parts[0] + ... + parts[count - 1]), in an order that count decides.
void sum_parts(cudaStream_t stream, const double* parts, int64_t count, double scale, double* out);
// *out = sum of squares; `parts` has room for kSquareParts doubles.
constexpr int64_t kSquareParts = 512;
void square_sum(cudaStream_t stream, const float* values, int64_t count, double* parts, double* out);

void softmax_forward(cudaStream_t stream, const float* x, float* y, int64_t rows, int64_t classes);
void softmax_backward(cudaStream_t stream, const float* y, const float* dy, float* dx, int64_t rows,
                      int64_t classes);

struct LossArguments {
  Loss loss{};
  bool from_logits = false;
  int64_t positions = 0, classes = 0;
  double share = 1.0;  // of a position in its row's loss
  const float* prediction = nullptr;
  const float* label = nullptr;         // (positions, classes), or
  const int32_t* classes_of = nullptr;  // (positions)
  const StepState* state = nullptr;
  float* grad = nullptr;    // may be null
  double* parts = nullptr;  // room for a double for each position
};
void loss(cudaStream_t stream, const LossArguments& arguments, double* sum);

struct MetricArguments {
  Metric metric{};
  float threshold = 0.5f;
  int64_t positions = 0, classes = 0;
  double share = 1.0;
  const float* prediction = nullptr;
  const float* label = nullptr;
  const int32_t* classes_of = nullptr;
  double* parts = nullptr;
};
void metric(cudaStream_t stream, const MetricArguments& arguments, double* sum);

// ---- columns (columns.cu): sums over the rows of (rows, channels)

// How many partial sums a column is cut into: a function of the shape alone.
int64_t column_parts(int64_t rows, int64_t channels);
// out[c] = sum over rows; `parts` has room for column_parts() * channels doubles.
void column_sums(cudaStream_t stream, const float* x, int64_t rows, int64_t channels, double* parts,
                 float* out);

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
void batch_norm_training(cudaStream_t stream, const NormArrays& norm, const MovingStatistics& moving,
                         const float* x, float* y);
void batch_norm_inference(cudaStream_t stream, const NormArrays& norm, const float* mean,
                          const float* variance, const float* x, float* y);
// d_gamma and d_beta may be null.
void batch_norm_backward(cudaStream_t stream, const NormArrays& norm, const float* x, const float* dy,
                         float* dx, float* d_gamma, float* d_beta);

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
void max_pool_forward(cudaStream_t stream, const WindowGeometry& g, const float* x, float* y,
                      uint16_t* where);
void max_pool_backward(cudaStream_t stream, const WindowGeometry& g, const float* dy, const uint16_t* where,
                       float* dx);
// Divides by the real cells only.
void average_pool_forward(cudaStream_t stream, const WindowGeometry& g, const float* x, float* y);
void average_pool_backward(cudaStream_t stream, const WindowGeometry& g, const float* dy, float* dx);

// Copies an image into a larger one, zeros around it, and back.
struct Padding {
  int64_t batch = 0, height = 0, width = 0, channels = 0;  // of the smaller image
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};
void pad_image(cudaStream_t stream, const Padding& padding, const float* x, float* padded);
void crop_image(cudaStream_t stream, const Padding& padding, const float* padded, float* x);

// Convolution in groups without a library: weights (filters, window height, window width, channels / groups),
// that is, in this backend's kernel layout. Made for few channels in a group, right for any.
struct GroupedConv {
  WindowGeometry window;  // its channels: of the input
  int64_t filters = 0, groups = 1;
};
void grouped_conv_forward(cudaStream_t stream, const GroupedConv& g, const float* x, const float* w,
                          float* y);
void grouped_conv_input(cudaStream_t stream, const GroupedConv& g, const float* dy, const float* w,
                        float* dx);
// `parts` has room for grouped_conv_parts() times as many doubles as there are weights.
int64_t grouped_conv_parts(const GroupedConv& g);
void grouped_conv_weights(cudaStream_t stream, const GroupedConv& g, const float* x, const float* dy,
                          double* parts, float* dw);

}  // namespace rondo::cuda
