#include "runtime/kernels/cuda/depthwise.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/conv.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/conv_plan.h"
#include "runtime/kernels/cuda/layer_factories.h"
#include "runtime/kernels/geometry.h"

namespace rondo::cuda {
namespace {

// Own kernels: cuDNN does depthwise convolutions badly on this layout of images. The parameter stays
// canonical.
class CudaDepthwise final : public Conv2DKernel {
 public:
  explicit CudaDepthwise(const Conv2DSpec& spec) : spec_(spec), output_{output_shape(spec), DType::kF32, {}} {
    kernel_ = {kernel_shape(spec), DType::kF32, {}};
    require(!spec.kernel_layout || spec.kernel_layout->canonical(),
            "{}: the imposed kernel layout \"{}\" is of another kernel", rondo::describe(spec),
            spec.kernel_layout ? spec.kernel_layout->text() : std::string());
    bias_ = {Shape{spec.filters}, DType::kF32, {}};
    depthwise_ = {.window = window_of(spec, output_.shape), .multiplier = spec.filters / spec.input.shape[3]};
  }

  int64_t scratch_bytes() const override {
    if (spec_.mode != Mode::kTraining) return 0;
    const int64_t weights = depthwise_parts(depthwise_) * kernel_.elements();
    const int64_t bias = spec_.use_bias ? column_parts(pixels(), spec_.filters) * spec_.filters : 0;
    return std::max(weights, bias) * static_cast<int64_t>(sizeof(double));
  }
  std::string implementation() const override { return "depthwise loop"; }
  const TensorDesc& input() const override { return spec_.input; }
  const TensorDesc& kernel() const override { return kernel_; }
  const TensorDesc& bias() const override { return bias_; }
  const TensorDesc& output() const override { return output_; }

  void forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
               const Tensor& out) override {
    const cudaStream_t stream = handle_of(on.stream);
    depthwise_forward(stream, depthwise_, in.as<const float>(), kernel.as<const float>(), out.as<float>());
    bias_activation(stream, spec_.activation, spec_.use_bias ? bias.as<const float>() : nullptr,
                    out.as<float>(), pixels(), spec_.filters);
  }
  void backward_weights(const Execution& on, const Tensor& in, const Tensor& grad_out,
                        const Tensor& grad_kernel, const Tensor& grad_bias) override {
    RONDO_CHECK(spec_.mode == Mode::kTraining);
    const cudaStream_t stream = handle_of(on.stream);
    auto* parts = static_cast<double*>(on.scratch);
    const auto* dy = grad_out.as<const float>();
    depthwise_weights(stream, depthwise_, in.as<const float>(), dy, parts, grad_kernel.as<float>());
    if (spec_.use_bias) {
      column_sums(stream, dy, pixels(), spec_.filters, parts, grad_bias.as<float>());
    }
  }
  void backward_input(const Execution& on, const Tensor& grad_out, const Tensor& kernel,
                      const Tensor& grad_in) override {
    RONDO_CHECK(spec_.mode == Mode::kTraining && spec_.input_gradient);
    depthwise_input(handle_of(on.stream), depthwise_, grad_out.as<const float>(), kernel.as<const float>(),
                    grad_in.as<float>());
  }

 private:
  int64_t pixels() const { return output_.elements() / spec_.filters; }

  Conv2DSpec spec_;
  TensorDesc kernel_, bias_, output_;
  Depthwise depthwise_;
};

}  // namespace

std::unique_ptr<Conv2DKernel> make_depthwise(const Conv2DSpec& spec) {
  return std::make_unique<CudaDepthwise>(spec);
}

}  // namespace rondo::cuda
