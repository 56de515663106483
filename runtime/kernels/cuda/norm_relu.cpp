#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/batch_norm.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/element.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {
namespace {

class CudaNormRelu final : public NormReluKernel {
 public:
  CudaNormRelu(Device& device, const NormReluSpec& spec) : spec_(spec) {
    const Shape& shape = spec.norm.input.shape;
    norm_.channels = shape[shape.rank() - 1];
    norm_.rows = spec.norm.input.elements() / norm_.channels;
    norm_.epsilon = spec.norm.epsilon;
    if (spec.norm.mode != Mode::kTraining) return;
    const int64_t bytes = norm_.channels * static_cast<int64_t>(sizeof(float));
    mean_ = device.allocate(bytes);
    scale_ = device.allocate(bytes);
    norm_.mean = mean_.as<float>();
    norm_.scale = scale_.as<float>();
  }

  int64_t scratch_bytes() const override {
    if (spec_.norm.mode != Mode::kTraining) return 0;
    return 2 * column_parts(norm_.rows, norm_.channels) * norm_.channels *
           static_cast<int64_t>(sizeof(double));
  }
  std::string implementation() const override {
    return spec_.add ? "loop: norm, add, relu" : "loop: norm, relu";
  }
  const TensorDesc& desc() const override { return spec_.norm.input; }

  void forward(const Execution& on, const Tensor& in, const Tensor& addend,
               const BatchNormParameters& parameters, const Tensor& out) override {
    RONDO_CHECK(spec_.add == static_cast<bool>(addend));
    const NormArrays norm = arrays(on, parameters);
    const cudaStream_t stream = handle_of(on.stream);
    auto *mean = parameters.moving_mean.as<float>(), *variance = parameters.moving_variance.as<float>();
    const auto count = static_cast<double>(norm_.rows);
    const bool corrected = spec_.norm.input.shape.rank() == 4 && norm_.rows > 1;
    const MovingStatistics moving{.mean = mean,
                                  .variance = variance,
                                  .momentum = spec_.norm.momentum,
                                  .correction = static_cast<float>(corrected ? count / (count - 1.0) : 1.0)};
    with_element(desc().dtype, [&]<class T>(Element<T>) {
      const auto *x = in.as<const T>(), *added = addend.as<const T>();
      if (spec_.norm.mode == Mode::kTraining) {
        batch_norm_statistics(stream, norm, moving, x);
        norm_relu(stream, norm, x, added, out.as<T>());
      } else {
        norm_relu_inference(stream, norm, mean, variance, x, added, out.as<T>());
      }
    });
  }

  void backward(const Execution& on, const Tensor& in, const Tensor& out, const Tensor& grad_out,
                const BatchNormParameters& parameters, const Gradients& gradients) override {
    RONDO_CHECK(spec_.norm.mode == Mode::kTraining && spec_.add == static_cast<bool>(gradients.addend));
    with_element(desc().dtype, [&]<class T>(Element<T>) {
      norm_relu_backward<T>(handle_of(on.stream), arrays(on, parameters), in.as<const T>(), out.as<const T>(),
                            grad_out.as<const T>(),
                            {.x = gradients.in.as<T>(),
                             .addend = gradients.addend.as<T>(),
                             .gamma = spec_.norm.scale ? gradients.gamma.as<float>() : nullptr,
                             .beta = spec_.norm.center ? gradients.beta.as<float>() : nullptr});
    });
  }

 private:
  NormArrays arrays(const Execution& on, const BatchNormParameters& parameters) const {
    NormArrays norm = norm_;
    norm.gamma = spec_.norm.scale ? parameters.gamma.as<const float>() : nullptr;
    norm.beta = spec_.norm.center ? parameters.beta.as<const float>() : nullptr;
    norm.parts = static_cast<double*>(on.scratch);
    return norm;
  }

  NormReluSpec spec_;
  NormArrays norm_;
  Buffer mean_, scale_;  // of the batch
};

}  // namespace

std::unique_ptr<NormReluKernel> make_norm_relu(const ContextPtr& context, const NormReluSpec& spec) {
  check_batch_norm(spec.norm);
  return std::make_unique<CudaNormRelu>(context->device, spec);
}

}  // namespace rondo::cuda
