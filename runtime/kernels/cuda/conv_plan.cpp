#include "runtime/kernels/cuda/conv_plan.h"

#include <algorithm>
#include <array>
#include <span>

#include "runtime/base/error.h"
#include "runtime/kernels/cuda/check.h"
#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {

WindowGeometry window_of(const Conv2DSpec& spec, const Shape& output) {
  const Shape& in = spec.input.shape;
  return {.batch = in[0],
          .height = in[1],
          .width = in[2],
          .channels = in[3],
          .out_height = output[1],
          .out_width = output[2],
          .window_height = spec.kernel_size[0],
          .window_width = spec.kernel_size[1],
          .stride_height = spec.strides[0],
          .stride_width = spec.strides[1],
          .dilation_height = spec.dilation[0],
          .dilation_width = spec.dilation[1],
          .top = spec.padding[0],
          .left = spec.padding[2]};
}
namespace {

// Of one convolution; the plan of a model shares it among all.
constexpr size_t kMostScratch = size_t{512} << 20;
constexpr float kOne = 1.0f, kZero = 0.0f;

template <class Descriptor, class T>
void create(Descriptor& into, cudnnStatus_t (*make)(T*), const char* call) {
  T descriptor = nullptr;
  check(make(&descriptor), call);
  into.reset(descriptor);
}

cudnnDataType_t data_type(DType dtype) {
  if (dtype == DType::kF32) return CUDNN_DATA_FLOAT;
  RONDO_CHECK(dtype == DType::kBF16 || dtype == DType::kF16);
  return dtype == DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

void describe_images(TensorDescriptor& into, cudnnDataType_t type, const Shape& shape) {
  create(into, cudnnCreateTensorDescriptor, "cudnnCreateTensorDescriptor");
  RONDO_CHECK_CUDNN(cudnnSetTensor4dDescriptor(into.get(), CUDNN_TENSOR_NHWC, type,
                                               static_cast<int>(shape[0]), static_cast<int>(shape[3]),
                                               static_cast<int>(shape[1]), static_cast<int>(shape[2])));
}

// The library's best guess that is deterministic and fits. Where products of float32 must be `exact` they
// are, whatever the guess was made for; `set_math` and `size_of` ask what that takes.
template <class Algorithm, class Performance, class SetMath, class SizeOf>
bool take_first(std::span<const Performance> candidates, bool exact, Chosen<Algorithm>& into,
                const SetMath& set_math, const SizeOf& size_of) {
  for (const Performance& candidate : candidates) {
    if (candidate.status != CUDNN_STATUS_SUCCESS || candidate.determinism != CUDNN_DETERMINISTIC) continue;
    const cudnnMathType_t math = exact ? CUDNN_FMA_MATH : candidate.mathType;
    set_math(math);
    size_t bytes = 0;
    if (size_of(candidate.algo, &bytes) != CUDNN_STATUS_SUCCESS || bytes > kMostScratch) continue;
    into = {candidate.algo, math, bytes};
    return true;
  }
  return false;
}

bool refused(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return false;
  if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) return true;  // with a finer reason
  check(status, call);
  return true;
}

}  // namespace

void ConvPlan::describe(const Conv2DSpec& spec, const Shape& output) {
  const cudnnDataType_t type = data_type(spec.input.dtype);
  exact_ = spec.input.dtype == DType::kF32 && !spec.tf32;
  describe_images(x_, type, spec.input.shape);
  describe_images(y_, type, output);
  describe_images(bias_, type, Shape{1, 1, 1, spec.filters});
  create(w_, cudnnCreateFilterDescriptor, "cudnnCreateFilterDescriptor");
  RONDO_CHECK_CUDNN(cudnnSetFilter4dDescriptor(
      w_.get(), type, CUDNN_TENSOR_NHWC, static_cast<int>(spec.filters),
      static_cast<int>(spec.input.shape[3] / spec.groups), static_cast<int>(spec.kernel_size[0]),
      static_cast<int>(spec.kernel_size[1])));
  create(conv_, cudnnCreateConvolutionDescriptor, "cudnnCreateConvolutionDescriptor");
  RONDO_CHECK_CUDNN(cudnnSetConvolution2dDescriptor(
      conv_.get(), static_cast<int>(spec.padding[0]), static_cast<int>(spec.padding[2]),
      static_cast<int>(spec.strides[0]), static_cast<int>(spec.strides[1]),
      static_cast<int>(spec.dilation[0]), static_cast<int>(spec.dilation[1]), CUDNN_CROSS_CORRELATION,
      CUDNN_DATA_FLOAT));
  RONDO_CHECK_CUDNN(cudnnSetConvolutionGroupCount(conv_.get(), static_cast<int>(spec.groups)));
  create(relu_, cudnnCreateActivationDescriptor, "cudnnCreateActivationDescriptor");
  RONDO_CHECK_CUDNN(
      cudnnSetActivationDescriptor(relu_.get(), CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0.0));
}

void ConvPlan::use(cudnnMathType_t math) const {
  RONDO_CHECK_CUDNN(cudnnSetConvolutionMathType(conv_.get(), math));
}

bool ConvPlan::choose(const Conv2DSpec& spec) {
  use(exact_ ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH);
  if (!choose_forward()) return false;
  if (spec.mode != Mode::kTraining) return true;
  use(exact_ ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH);
  if (!choose_weight_gradient()) return false;
  if (!spec.input_gradient) return true;
  use(exact_ ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH);
  return choose_input_gradient();
}

bool ConvPlan::choose_forward() {
  const cudnnHandle_t handle = context_->cudnn();
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT> found{};
  int count = 0;
  if (refused(cudnnGetConvolutionForwardAlgorithm_v7(handle, x_.get(), w_.get(), conv_.get(), y_.get(),
                                                     static_cast<int>(found.size()), &count, found.data()),
              "cudnnGetConvolutionForwardAlgorithm_v7")) {
    return false;
  }
  const std::span<const cudnnConvolutionFwdAlgoPerf_t> candidates(found.data(), static_cast<size_t>(count));
  return take_first(
      candidates, exact_, forward_, [&](cudnnMathType_t math) { use(math); },
      [&](cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
        return cudnnGetConvolutionForwardWorkspaceSize(handle, x_.get(), w_.get(), conv_.get(), y_.get(),
                                                       algorithm, bytes);
      });
}

bool ConvPlan::choose_weight_gradient() {
  const cudnnHandle_t handle = context_->cudnn();
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT> found{};
  int count = 0;
  if (refused(
          cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x_.get(), y_.get(), conv_.get(), w_.get(),
                                                        static_cast<int>(found.size()), &count, found.data()),
          "cudnnGetConvolutionBackwardFilterAlgorithm_v7")) {
    return false;
  }
  const std::span<const cudnnConvolutionBwdFilterAlgoPerf_t> candidates(found.data(),
                                                                        static_cast<size_t>(count));
  return take_first(
      candidates, exact_, weights_, [&](cudnnMathType_t math) { use(math); },
      [&](cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x_.get(), y_.get(), conv_.get(),
                                                              w_.get(), algorithm, bytes);
      });
}

bool ConvPlan::choose_input_gradient() {
  const cudnnHandle_t handle = context_->cudnn();
  std::array<cudnnConvolutionBwdDataAlgoPerf_t, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT> found{};
  int count = 0;
  if (refused(
          cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w_.get(), y_.get(), conv_.get(), x_.get(),
                                                      static_cast<int>(found.size()), &count, found.data()),
          "cudnnGetConvolutionBackwardDataAlgorithm_v7")) {
    return false;
  }
  const std::span<const cudnnConvolutionBwdDataAlgoPerf_t> candidates(found.data(),
                                                                      static_cast<size_t>(count));
  return take_first(
      candidates, exact_, input_, [&](cudnnMathType_t math) { use(math); },
      [&](cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
        return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w_.get(), y_.get(), conv_.get(), x_.get(),
                                                            algorithm, bytes);
      });
}

std::optional<ConvPlan> ConvPlan::make(Context& context, const Conv2DSpec& spec, const Shape& output) {
  RONDO_CHECK(spec.padding[0] == spec.padding[1] && spec.padding[2] == spec.padding[3]);
  ConvPlan plan(context);
  plan.describe(spec, output);
  if (!plan.choose(spec)) return std::nullopt;
  return plan;
}

int64_t ConvPlan::scratch_bytes() const {
  return static_cast<int64_t>(std::max({forward_.bytes, weights_.bytes, input_.bytes}));
}

void ConvPlan::forward(const Execution& on, const void* x, const void* w, void* y) const {
  use(forward_.math);
  RONDO_CHECK_CUDNN(cudnnConvolutionForward(context_->cudnn_on(on.stream), &kOne, x_.get(), x, w_.get(), w,
                                            conv_.get(), forward_.algorithm, on.scratch, forward_.bytes,
                                            &kZero, y_.get(), y));
}

bool ConvPlan::forward_bias_relu(const Execution& on, const void* x, const void* w, const void* bias,
                                 void* y) {
  if (!fuses_) return false;
  use(forward_.math);
  // Some algorithms have no such epilogue, which only the call itself tells, at times as a wrong parameter.
  const cudnnStatus_t status = cudnnConvolutionBiasActivationForward(
      context_->cudnn_on(on.stream), &kOne, x_.get(), x, w_.get(), w, conv_.get(), forward_.algorithm,
      on.scratch, forward_.bytes, &kZero, y_.get(), y, bias_.get(), bias, relu_.get(), y_.get(), y);
  fuses_ = status / 1000 != CUDNN_STATUS_BAD_PARAM / 1000 &&
           !refused(status, "cudnnConvolutionBiasActivationForward");
  return fuses_;
}

void ConvPlan::weight_gradient(const Execution& on, const void* x, const void* dy, void* dw) const {
  use(weights_.math);
  RONDO_CHECK_CUDNN(cudnnConvolutionBackwardFilter(context_->cudnn_on(on.stream), &kOne, x_.get(), x,
                                                   y_.get(), dy, conv_.get(), weights_.algorithm, on.scratch,
                                                   weights_.bytes, &kZero, w_.get(), dw));
}

void ConvPlan::input_gradient(const Execution& on, const void* dy, const void* w, void* dx) const {
  use(input_.math);
  RONDO_CHECK_CUDNN(cudnnConvolutionBackwardData(context_->cudnn_on(on.stream), &kOne, w_.get(), w, y_.get(),
                                                 dy, conv_.get(), input_.algorithm, on.scratch, input_.bytes,
                                                 &kZero, x_.get(), dx));
}

}  // namespace rondo::cuda
