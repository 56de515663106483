// Naive float64 versions of every operation, straight from their definitions: what kernels and models are
// tested against. Shapes and conventions are those of runtime/kernels/*.h; all arrays are canonical.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/activations.h"
#include "runtime/kernels/conv.h"
#include "runtime/kernels/loss.h"
#include "runtime/kernels/pool.h"
#include "runtime/tensor/shape.h"

namespace rondo::test {

struct Array {
  Shape shape;
  std::vector<double> values;

  Array() = default;
  explicit Array(const Shape& extents) : shape(extents), values(static_cast<size_t>(extents.elements())) {}
  double& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  double operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
  int64_t size() const { return static_cast<int64_t>(values.size()); }
};

// Float32 values in [-1, 1), the same for the same seed.
Array random_array(const Shape& shape, uint64_t seed);

// Geometry of a window that slides over an image.
struct Window {
  std::array<int64_t, 2> size{1, 1};
  std::array<int64_t, 2> strides{1, 1};
  std::array<int64_t, 2> dilation{1, 1};
  std::array<int64_t, 4> padding{0, 0, 0, 0};  // top, bottom, left, right
  int64_t groups = 1;
};
Window window_of(const Conv2DSpec& spec);
Window window_of(const Pool2DSpec& spec);

// `bias` may be empty.
Array conv2d(const Array& x, const Array& kernel, const Array& bias, const Window& window);
struct LinearGradients {
  Array x, kernel, bias;
};
LinearGradients conv2d_gradients(const Array& x, const Array& kernel, const Array& dy, const Window& window);

// x of any rank is flattened behind axis 0.
Array dense(const Array& x, const Array& kernel, const Array& bias);
LinearGradients dense_gradients(const Array& x, const Array& kernel, const Array& dy);

Array pool2d(const Array& x, Pooling pooling, const Window& window);
Array pool2d_gradient(const Array& x, const Array& dy, Pooling pooling, const Window& window);

Array activation(const Array& x, const ActivationFunction& f);
Array activation_gradient(const Array& x, const Array& dy, const ActivationFunction& f);
Array softmax(const Array& x);
Array softmax_gradient(const Array& x, const Array& dy);

struct BatchStatistics {
  std::vector<double> mean, variance;  // biased
  int64_t count = 0;                   // elements per channel
};
BatchStatistics batch_statistics(const Array& x);
// gamma and beta may be empty (1 and 0).
Array batch_norm(const Array& x, const BatchStatistics& statistics, const Array& gamma, const Array& beta,
                 double epsilon);
struct NormGradients {
  Array x, gamma, beta;
};
NormGradients batch_norm_gradients(const Array& x, const Array& gamma, const Array& dy, double epsilon);

// Sum over the rows. Labels of the sparse loss are class numbers in an array without the last axis.
double loss(const Array& prediction, const Array& label, Loss kind, bool from_logits);
// d loss / d prediction, from the formulas.
Array loss_gradient(const Array& prediction, const Array& label, Loss kind, bool from_logits);
double metric(const Array& prediction, const Array& label, Metric kind, bool from_logits);

// Central differences of a scalar function of `x`.
Array numeric_gradient(const std::function<double(const Array&)>& f, const Array& x, double step = 1e-5);

// sum(a * b): turns an array-valued function into a scalar one with gradient b.
double inner(const Array& a, const Array& b);
// max |a - b| / max(max |b|, floor); infinite for different shapes or NaN.
double relative_error(const Array& a, const Array& b, double floor = 1e-3);

}  // namespace rondo::test
