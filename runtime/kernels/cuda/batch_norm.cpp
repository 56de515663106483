#include "runtime/kernels/batch_norm.h"

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/element.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {
namespace {

class CudaBatchNorm final : public BatchNormKernel {
 public:
  CudaBatchNorm(Device& device, const BatchNormSpec& spec)
      : spec_(spec), channels_(spec.input.shape[spec.input.shape.rank() - 1]) {
    norm_.channels = channels_;
    norm_.rows = spec.input.elements() / channels_;
    norm_.epsilon = spec.epsilon;
    if (spec.mode != Mode::kTraining) return;
    const int64_t bytes = channels_ * static_cast<int64_t>(sizeof(float));
    mean_ = device.allocate(bytes);
    scale_ = device.allocate(bytes);
    norm_.mean = mean_.as<float>();
    norm_.scale = scale_.as<float>();
  }

  int64_t scratch_bytes() const override {
    if (spec_.mode != Mode::kTraining) return 0;
    return 2 * column_parts(norm_.rows, channels_) * channels_ * static_cast<int64_t>(sizeof(double));
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& input() const override { return spec_.input; }
  const TensorDesc& output() const override { return spec_.input; }

  void forward(const Execution& on, const Tensor& in, const BatchNormParameters& parameters,
               const Tensor& out) override {
    const NormArrays norm = arrays(on, parameters);
    auto *mean = parameters.moving_mean.as<float>(), *variance = parameters.moving_variance.as<float>();
    const auto count = static_cast<double>(norm_.rows);
    const bool corrected = spec_.input.shape.rank() == 4 && norm_.rows > 1;
    const MovingStatistics moving{.mean = mean,
                                  .variance = variance,
                                  .momentum = spec_.momentum,
                                  .correction = static_cast<float>(corrected ? count / (count - 1.0) : 1.0)};
    with_element(spec_.input.dtype, [&]<class T>(Element<T>) {
      if (spec_.mode == Mode::kTraining) {
        batch_norm_training(handle_of(on.stream), norm, moving, in.as<const T>(), out.as<T>());
      } else {
        batch_norm_inference(handle_of(on.stream), norm, mean, variance, in.as<const T>(), out.as<T>());
      }
    });
  }

  void backward(const Execution& on, const Tensor& in, const Tensor& grad_out,
                const BatchNormParameters& parameters, const Tensor& grad_in, const Tensor& grad_gamma,
                const Tensor& grad_beta) override {
    RONDO_CHECK(spec_.mode == Mode::kTraining);
    with_element(spec_.input.dtype, [&]<class T>(Element<T>) {
      batch_norm_backward(handle_of(on.stream), arrays(on, parameters), in.as<const T>(),
                          grad_out.as<const T>(), grad_in.as<T>(),
                          spec_.scale ? grad_gamma.as<float>() : nullptr,
                          spec_.center ? grad_beta.as<float>() : nullptr);
    });
  }

 private:
  NormArrays arrays(const Execution& on, const BatchNormParameters& parameters) const {
    NormArrays norm = norm_;
    norm.gamma = spec_.scale ? parameters.gamma.as<const float>() : nullptr;
    norm.beta = spec_.center ? parameters.beta.as<const float>() : nullptr;
    norm.parts = static_cast<double*>(on.scratch);
    return norm;
  }

  BatchNormSpec spec_;
  int64_t channels_;
  NormArrays norm_;
  Buffer mean_, scale_;  // of the batch
};

}  // namespace

void check_batch_norm(const BatchNormSpec& spec) {
  const auto& shape = spec.input.shape;
  require_elements(spec.input, "batch normalization");
  require(shape.rank() == 2 || shape.rank() == 4,
          "batch normalization reads (rows, channels) or (batch, height, width, channels), got {}",
          shape.text());
  require(spec.epsilon > 0.0f && spec.momentum >= 0.0f && spec.momentum <= 1.0f,
          "batch normalization: epsilon {} must be positive and momentum {} in [0, 1]", spec.epsilon,
          spec.momentum);
}

std::unique_ptr<BatchNormKernel> make_batch_norm(const ContextPtr& context, const BatchNormSpec& spec) {
  check_batch_norm(spec);
  return std::make_unique<CudaBatchNorm>(context->device, spec);
}

}  // namespace rondo::cuda
