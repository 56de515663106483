// cuDNN: convolutions of NHWC images. What is not done here returns CUDNN_STATUS_NOT_SUPPORTED.
#include <cudnn.h>

#include <cstring>
#include <optional>
#include <vector>

#include "tests/sim/api.h"
#include "tests/sim/convolution.h"
#include "tests/sim/numbers.h"

using namespace rondo::sim;

namespace {

struct Handle {
  cudaStream_t stream = nullptr;
};
struct Tensor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC;
  int n = 0, c = 0, h = 0, w = 0;

  size_t count() const {
    return static_cast<size_t>(n) * static_cast<size_t>(c) * static_cast<size_t>(h * w);
  }
};
struct Filter {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC;
  int k = 0, c = 0, h = 0, w = 0;

  size_t count() const {
    return static_cast<size_t>(k) * static_cast<size_t>(c) * static_cast<size_t>(h * w);
  }
};
struct Convolution {
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, groups = 1;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct Activation {
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_RELU;
};

template <class T, class H>
T& as(H handle) {
  return *reinterpret_cast<T*>(handle);
}
template <class T, class H>
cudnnStatus_t make(H* handle) {
  *handle = reinterpret_cast<H>(new T);
  return CUDNN_STATUS_SUCCESS;
}
template <class T, class H>
cudnnStatus_t unmake(H handle) {
  delete reinterpret_cast<T*>(handle);
  return CUDNN_STATUS_SUCCESS;
}

std::optional<Format> format_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return Format::kF32;
    case CUDNN_DATA_HALF:
      return Format::kF16;
    case CUDNN_DATA_BFLOAT16:
      return Format::kBf16;
    default:
      return std::nullopt;
  }
}

template <class Described>
size_t bytes_of(const Described& what) {
  return what.count() * size_of(*format_of(what.type));
}

// The shape that the descriptors agree on, or why not.
cudnnStatus_t shape_of(const Tensor& x, const Filter& w, const Convolution& conv, const Tensor& y,
                       ConvolutionShape& shape) {
  for (const cudnnDataType_t type : {x.type, w.type, y.type}) {
    if (!format_of(type) || type != x.type) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  for (const cudnnTensorFormat_t format : {x.format, w.format, y.format}) {
    if (format != CUDNN_TENSOR_NHWC) return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (conv.mode != CUDNN_CROSS_CORRELATION || conv.compute != CUDNN_DATA_FLOAT)
    return CUDNN_STATUS_NOT_SUPPORTED;
  if (w.c * conv.groups != x.c || w.k % conv.groups != 0 || y.c != w.k || y.n != x.n)
    return CUDNN_STATUS_BAD_PARAM;
  shape = {.images = x.n,
           .height = x.h,
           .width = x.w,
           .channels = x.c,
           .filters = w.k,
           .kernel_height = w.h,
           .kernel_width = w.w,
           .groups = conv.groups,
           .pad_height = conv.pad_h,
           .pad_width = conv.pad_w,
           .stride_height = conv.stride_h,
           .stride_width = conv.stride_w,
           .dilation_height = conv.dilation_h,
           .dilation_width = conv.dilation_w};
  return y.h == shape.out_height() && y.w == shape.out_width() ? CUDNN_STATUS_SUCCESS
                                                               : CUDNN_STATUS_BAD_PARAM;
}

// One of the library's spans, as floats while the body runs.
class Values {
 public:
  Values(Format format, const void* data, size_t count) : format_(format), data_(const_cast<void*>(data)) {
    if (format == Format::kF32) return;
    floats_.resize(count);
    load(format, data, floats_.data(), count);
  }
  float* data() { return format_ == Format::kF32 ? static_cast<float*>(data_) : floats_.data(); }
  void finish() { store(format_, data(), data_, format_ == Format::kF32 ? 0 : floats_.size()); }

 private:
  Format format_;
  void* data_;
  std::vector<float> floats_;
};

constexpr size_t kWorkspace = 8192;  // of the algorithms that want one

cudnnStatus_t queue(cudnnHandle_t handle, const char* name, std::vector<Access> accesses,
                    std::function<void()> body) {
  for (const Access& access : accesses) {
    if (access.data == nullptr && access.bytes > 0) return CUDNN_STATUS_BAD_PARAM;
  }
  const cudaError_t error = with_stream(as<Handle>(handle).stream, [&](Stream& stream) {
    return driver().submit(
        stream, [=] { return Operation{.name = name, .accesses = accesses, .body = body, .kernel = true}; });
  });
  return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

bool ones(const void* alpha, const void* beta) {
  return *static_cast<const float*>(alpha) == 1.0f && *static_cast<const float*>(beta) == 0.0f;
}

template <class Performance, class Algorithm>
Performance performance(Algorithm algorithm, size_t memory, bool deterministic, cudnnMathType_t math,
                        float time) {
  Performance result{};
  result.algo = algorithm;
  result.status = CUDNN_STATUS_SUCCESS;
  result.time = time;
  result.memory = memory;
  result.determinism = deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
  result.mathType = math;
  return result;
}

cudnnMathType_t math_of(cudnnConvolutionDescriptor_t conv) {
  return as<Convolution>(conv).math == CUDNN_FMA_MATH ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

template <class Performance>
cudnnStatus_t give(std::initializer_list<Performance> all, int wanted, int* returned, Performance* results) {
  *returned = 0;
  for (const Performance& each : all) {
    if (*returned < wanted) results[(*returned)++] = each;
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
      return "CUDNN_STATUS_EXECUTION_FAILED";
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (ready() != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
  return make<Handle>(handle);
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return unmake<Handle>(handle);
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  as<Handle>(handle).stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return make<Tensor>(tensor);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  return unmake<Tensor>(tensor);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  if (n < 1 || c < 1 || h < 1 || w < 1) return CUDNN_STATUS_BAD_PARAM;
  as<Tensor>(tensor) = {type, format, n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return make<Filter>(filter);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  return unmake<Filter>(filter);
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  if (k < 1 || c < 1 || h < 1 || w < 1) return CUDNN_STATUS_BAD_PARAM;
  as<Filter>(filter) = {type, format, k, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activation) {
  return make<Activation>(activation);
}
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
  return unmake<Activation>(activation);
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t, double) {
  as<Activation>(activation).mode = mode;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* conv) {
  return make<Convolution>(conv);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv) {
  return unmake<Convolution>(conv);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  Convolution& to = as<Convolution>(conv);
  to = {pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, to.groups, mode, compute, to.math};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups) {
  as<Convolution>(conv).groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math) {
  as<Convolution>(conv).math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y, int wanted,
                                                     int* returned, cudnnConvolutionFwdAlgoPerf_t* results) {
  ConvolutionShape shape;
  const auto status = shape_of(as<Tensor>(x), as<Filter>(w), as<Convolution>(conv), as<Tensor>(y), shape);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  using Performance = cudnnConvolutionFwdAlgoPerf_t;
  return give<Performance>(
      {performance<Performance>(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, kWorkspace, true,
                                math_of(conv), 1),
       performance<Performance>(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0, true, math_of(conv), 2)},
      wanted, returned, results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                      const cudnnFilterDescriptor_t,
                                                      const cudnnConvolutionDescriptor_t,
                                                      const cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  *bytes = algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ? 0 : kWorkspace;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, const cudnnFilterDescriptor_t,
                                                           const cudnnTensorDescriptor_t,
                                                           const cudnnConvolutionDescriptor_t,
                                                           const cudnnTensorDescriptor_t,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm,
                                                           size_t* bytes) {
  *bytes = algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 ? 0 : kWorkspace;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                             const cudnnTensorDescriptor_t,
                                                             const cudnnConvolutionDescriptor_t,
                                                             const cudnnFilterDescriptor_t,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                                             size_t* bytes) {
  *bytes = algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 ? 0 : kWorkspace;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t conv,
                                                          const cudnnTensorDescriptor_t dx, int wanted,
                                                          int* returned,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  ConvolutionShape shape;
  const auto status = shape_of(as<Tensor>(dx), as<Filter>(w), as<Convolution>(conv), as<Tensor>(dy), shape);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  using Performance = cudnnConvolutionBwdDataAlgoPerf_t;
  return give<Performance>(
      {performance<Performance>(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, 0, false, math_of(conv), 1),
       performance<Performance>(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, kWorkspace, true, math_of(conv), 2)},
      wanted, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t conv,
                                                            const cudnnFilterDescriptor_t dw, int wanted,
                                                            int* returned,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  ConvolutionShape shape;
  const auto status = shape_of(as<Tensor>(x), as<Filter>(dw), as<Convolution>(conv), as<Tensor>(dy), shape);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  using Performance = cudnnConvolutionBwdFilterAlgoPerf_t;
  return give<Performance>(
      {performance<Performance>(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, 0, false, math_of(conv), 1),
       performance<Performance>(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, kWorkspace, true, math_of(conv), 2)},
      wanted, returned, results);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_desc, const void* x,
                                      const cudnnFilterDescriptor_t w_desc, const void* w,
                                      const cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      size_t workspace_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_desc, void* y) {
  ConvolutionShape s;
  const Tensor x_is = as<Tensor>(x_desc), y_is = as<Tensor>(y_desc);
  const Filter w_is = as<Filter>(w_desc);
  const auto status = shape_of(x_is, w_is, as<Convolution>(conv), y_is, s);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (!ones(alpha, beta)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM && workspace_bytes < kWorkspace) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return queue(handle, "cudnnConvolutionForward",
               {{x, bytes_of(x_is), false},
                {w, bytes_of(w_is), false},
                {y, bytes_of(y_is), true},
                {workspace, workspace_bytes, true}},
               [=, format = *format_of(x_is.type)] {
                 Values in(format, x, x_is.count()), filters(format, w, w_is.count()),
                     out(format, y, y_is.count());
                 convolve(s, in.data(), filters.data(), out.data());
                 out.finish();
               });
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_desc, const void* x,
    const cudnnFilterDescriptor_t w_desc, const void* w, const cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t workspace_bytes, const void* alpha2,
    const cudnnTensorDescriptor_t, const void*, const cudnnTensorDescriptor_t bias_desc, const void* bias,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t y_desc, void* y) {
  ConvolutionShape s;
  const Tensor x_is = as<Tensor>(x_desc), y_is = as<Tensor>(y_desc), bias_is = as<Tensor>(bias_desc);
  const Filter w_is = as<Filter>(w_desc);
  const auto status = shape_of(x_is, w_is, as<Convolution>(conv), y_is, s);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  // The real library fuses with this algorithm only.
  if (!ones(alpha, alpha2) || as<Activation>(activation).mode != CUDNN_ACTIVATION_RELU ||
      algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM || bias_is.type != x_is.type) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (workspace_bytes < kWorkspace || bias_is.count() != static_cast<size_t>(s.filters))
    return CUDNN_STATUS_BAD_PARAM;
  return queue(handle, "cudnnConvolutionBiasActivationForward",
               {{x, bytes_of(x_is), false},
                {w, bytes_of(w_is), false},
                {bias, bytes_of(bias_is), false},
                {y, bytes_of(y_is), true},
                {workspace, workspace_bytes, true}},
               [=, format = *format_of(x_is.type)] {
                 Values in(format, x, x_is.count()), filters(format, w, w_is.count()),
                     out(format, y, y_is.count());
                 Values offsets(format, bias, bias_is.count());
                 convolve(s, in.data(), filters.data(), out.data());
                 for (size_t i = 0; i < y_is.count(); ++i) {
                   const float value = out.data()[i] + offsets.data()[i % bias_is.count()];
                   out.data()[i] = value > 0.0f || value != value ? value : 0.0f;
                 }
                 out.finish();
               });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_desc, const void* w,
                                           const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           const cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t workspace_bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_desc, void* dx) {
  ConvolutionShape s;
  const Tensor dx_is = as<Tensor>(dx_desc), dy_is = as<Tensor>(dy_desc);
  const Filter w_is = as<Filter>(w_desc);
  const auto status = shape_of(dx_is, w_is, as<Convolution>(conv), dy_is, s);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (!ones(alpha, beta)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (algorithm != CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 && workspace_bytes < kWorkspace)
    return CUDNN_STATUS_BAD_PARAM;
  return queue(handle, "cudnnConvolutionBackwardData",
               {{w, bytes_of(w_is), false},
                {dy, bytes_of(dy_is), false},
                {dx, bytes_of(dx_is), true},
                {workspace, workspace_bytes, true}},
               [=, format = *format_of(w_is.type)] {
                 Values filters(format, w, w_is.count()), out(format, dy, dy_is.count()),
                     in(format, dx, dx_is.count());
                 convolve_back_to_input(s, filters.data(), out.data(), in.data());
                 in.finish();
               });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_desc, const void* x,
                                             const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t workspace_bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_desc, void* dw) {
  ConvolutionShape s;
  const Tensor x_is = as<Tensor>(x_desc), dy_is = as<Tensor>(dy_desc);
  const Filter dw_is = as<Filter>(dw_desc);
  const auto status = shape_of(x_is, dw_is, as<Convolution>(conv), dy_is, s);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (!ones(alpha, beta)) return CUDNN_STATUS_NOT_SUPPORTED;
  const bool deterministic = algorithm != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0;
  if (deterministic && workspace_bytes < kWorkspace) return CUDNN_STATUS_BAD_PARAM;
  return queue(handle, "cudnnConvolutionBackwardFilter",
               {{x, bytes_of(x_is), false},
                {dy, bytes_of(dy_is), false},
                {dw, bytes_of(dw_is), true},
                {workspace, workspace_bytes, true}},
               [=, format = *format_of(x_is.type)] {
                 Values in(format, x, x_is.count()), out(format, dy, dy_is.count());
                 Values filters(format, dw, dw_is.count());
                 // Who takes an algorithm that is not deterministic shall see other bits with another seed.
                 const int64_t first =
                     deterministic ? 0 : static_cast<int64_t>(driver().seed % 1024) % s.images;
                 convolve_back_to_filters(s, in.data(), out.data(), filters.data(), first);
                 filters.finish();
               });
}

}  // extern "C"
