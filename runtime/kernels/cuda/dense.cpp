#include "runtime/kernels/dense.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/element.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/gemm.h"
#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {
namespace {

using Extra = GemmSpec::Extra;

class CudaDense final : public DenseKernel {
 public:
  CudaDense(ContextPtr context, const DenseSpec& spec)
      : context_(std::move(context)), spec_(spec), rows_(spec.input.shape[0]) {
    const int64_t features = spec.input.shape.sample().elements(), units = spec.units;
    kernel_ = {Shape{features, units}, DType::kF32, {}};
    bias_ = {Shape{units}, DType::kF32, {}};
    output_ = {Shape{rows_, units}, spec.input.dtype, {}};

    const GemmSpec product{.rows = rows_, .columns = units, .inner = features, .out = output_.dtype};
    if (spec.use_bias) forward_ = with(product, fused() ? Extra::kBiasRelu : Extra::kBias);
    bias_fused_ = forward_.has_value();
    if (!forward_) forward_ = plain(product);
    if (spec.mode != Mode::kTraining) return;

    const GemmSpec weights{.rows = features, .columns = units, .inner = rows_, .transpose_a = true};
    // The library's sum of 16-bit columns comes out in types that differ between its versions.
    if (spec.use_bias && output_.dtype == DType::kF32) weight_gradient_ = with(weights, Extra::kColumnSum);
    sum_fused_ = weight_gradient_.has_value();
    if (!weight_gradient_) weight_gradient_ = plain(weights);
    if (!spec.input_gradient) return;
    input_gradient_ = plain(
        {.rows = rows_, .columns = features, .inner = units, .transpose_b = true, .out = spec.input.dtype});
  }

  int64_t scratch_bytes() const override {
    int64_t bytes = 0;
    for (const auto* gemm : {&forward_, &weight_gradient_, &input_gradient_}) {
      if (*gemm) bytes = std::max(bytes, (*gemm)->scratch_bytes());
    }
    if (spec_.mode == Mode::kTraining && spec_.use_bias && !sum_fused_) {
      bytes = std::max(bytes,
                       column_parts(rows_, spec_.units) * spec_.units * static_cast<int64_t>(sizeof(double)));
    }
    return bytes;
  }
  std::string implementation() const override {
    std::string text = "cuBLASLt";
    if (bias_fused_) text += fused() ? " + bias + relu" : " + bias";
    if (sum_fused_) text += ", bias gradient fused";
    return text;
  }
  const TensorDesc& input() const override { return spec_.input; }
  const TensorDesc& kernel() const override { return kernel_; }
  const TensorDesc& bias() const override { return bias_; }
  const TensorDesc& output() const override { return output_; }

  void forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
               const Tensor& out) override {
    forward_->run(on, in.data, kernel.data, out.data, bias_fused_ ? bias.data : nullptr);
    if (bias_fused_ && fused()) return;
    const bool adds = spec_.use_bias && !bias_fused_;
    with_element(output_.dtype, [&]<class T>(Element<T>) {
      bias_activation(handle_of(on.stream), spec_.activation, adds ? bias.as<const T>() : nullptr,
                      out.as<T>(), rows_, spec_.units);
    });
  }

  void backward_weights(const Execution& on, const Tensor& in, const Tensor& grad_out,
                        const Tensor& grad_kernel, const Tensor& grad_bias) override {
    RONDO_CHECK(weight_gradient_.has_value());
    weight_gradient_->run(on, in.data, grad_out.data, grad_kernel.data,
                          sum_fused_ ? grad_bias.data : nullptr);
    if (!spec_.use_bias || sum_fused_) return;
    with_element(output_.dtype, [&]<class T>(Element<T>) {
      column_sums(handle_of(on.stream), grad_out.as<const T>(), rows_, spec_.units,
                  static_cast<double*>(on.scratch), grad_bias.as<float>());
    });
  }

  void backward_input(const Execution& on, const Tensor& grad_out, const Tensor& kernel,
                      const Tensor& grad_in) override {
    RONDO_CHECK(input_gradient_.has_value());
    input_gradient_->run(on, grad_out.data, kernel.data, grad_in.data);
  }

 private:
  bool fused() const { return spec_.activation == Activation::kRelu; }
  std::optional<Gemm> with(GemmSpec spec, Extra extra) {
    spec.extra = extra;
    spec.in = spec_.input.dtype;
    spec.tf32 = spec_.tf32;
    if (spec_.alignment < 16) {
      if (extra != Extra::kNone) return std::nullopt;  // nothing is said about vectors that are not aligned
      spec.alignment = 4;
    }
    return Gemm::make(*context_, spec);
  }
  Gemm plain(const GemmSpec& spec) {
    auto gemm = with(spec, Extra::kNone);
    if (!gemm) {
      raise<Unavailable>("cuBLASLt cannot make dense {} to {} units", spec_.input.shape.text(), spec_.units);
    }
    return std::move(*gemm);
  }

  ContextPtr context_;
  DenseSpec spec_;
  int64_t rows_;
  TensorDesc kernel_, bias_, output_;
  std::optional<Gemm> forward_, weight_gradient_, input_gradient_;
  bool bias_fused_ = false;  // forward_ adds the bias
  bool sum_fused_ = false;   // weight_gradient_ writes the bias gradient
};

}  // namespace

std::unique_ptr<DenseKernel> make_dense(ContextPtr context, const DenseSpec& spec) {
  require_elements(spec.input, "dense");
  require(spec.input.shape.rank() == 2 || spec.input.shape.rank() == 4,
          "dense reads (rows, features) or (rows, height, width, channels), got {}", spec.input.shape.text());
  require(spec.units > 0, "dense {} to {} units: the number of units must be positive",
          spec.input.shape.text(), spec.units);
  require(!spec.kernel_layout || spec.kernel_layout->canonical(),
          "dense {} to {} units: the imposed kernel layout \"{}\" is of another kernel",
          spec.input.shape.text(), spec.units,
          spec.kernel_layout ? spec.kernel_layout->text() : std::string());
  return std::make_unique<CudaDense>(std::move(context), spec);
}

}  // namespace rondo::cuda
