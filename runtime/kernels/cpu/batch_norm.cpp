#include "runtime/kernels/batch_norm.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/operation.h"

namespace rondo::cpu {
namespace {

// Rows are images of one pixel.
Shape as_image(const Shape& shape) {
  return shape.rank() == 2 ? Shape{shape[0], 1, 1, shape[1]} : shape;
}

class CpuBatchNorm final : public BatchNormKernel {
 public:
  CpuBatchNorm(ContextPtr context, const BatchNormSpec& spec)
      : context_(std::move(context)),
        spec_(spec),
        training_(spec.mode == Mode::kTraining),
        channels_(spec.input.shape[spec.input.shape.rank() - 1]),
        desc_(spec.input) {
    const Shape image = as_image(spec.input.shape);
    MemoryDesc data = spec.input.layout.canonical() ? canonical_image(image) : image_desc(spec.input);
    auto forward = make_forward(data);
    if (is_reference(forward) && !spec.input.layout.canonical()) {
      data = canonical_image(image);
      desc_.layout = {};
      forward = make_forward(data);
    }
    std::vector<Operation::Operand> operands{{DNNL_ARG_SRC, data}};
    for (const int argument : {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE}) operands.push_back({argument, vector()});
    if (spec.scale) operands.push_back({DNNL_ARG_SCALE, vector()});
    if (spec.center) operands.push_back({DNNL_ARG_SHIFT, vector()});
    operands.push_back({DNNL_ARG_DST, data});
    forward_ = std::make_unique<Operation>(context_, forward, operands);
    if (!training_) return;
    const int64_t bytes = channels_ * static_cast<int64_t>(sizeof(float));
    mean_ = context_->device.allocate(bytes);
    variance_ = context_->device.allocate(bytes);
    make_backward(data, forward);
  }

  int64_t scratch_bytes() const override {
    return std::max(forward_->scratch_bytes(), backward_ ? backward_->scratch_bytes() : 0);
  }
  std::string implementation() const override {
    return "oneDNN " + forward_->implementation() +
           (backward_ ? ", backward " + backward_->implementation() : std::string());
  }
  const TensorDesc& input() const override { return desc_; }
  const TensorDesc& output() const override { return desc_; }

  void forward(const Execution& on, const Tensor& in, const BatchNormParameters& parameters,
               const Tensor& out) override {
    const void* mean = training_ ? mean_.data() : parameters.moving_mean.data;
    const void* variance = training_ ? variance_.data() : parameters.moving_variance.data;
    const void *gamma = parameters.gamma.data, *beta = parameters.beta.data;
    if (spec_.scale && spec_.center) {
      forward_->execute(on, {in.data, mean, variance, gamma, beta, out.data});
    } else if (spec_.scale || spec_.center) {
      forward_->execute(on, {in.data, mean, variance, spec_.scale ? gamma : beta, out.data});
    } else {
      forward_->execute(on, {in.data, mean, variance, out.data});
    }
    if (training_) move_statistics(parameters);
  }

  void backward(const Execution& on, const Tensor& in, const Tensor& grad_out,
                const BatchNormParameters& parameters, const Tensor& grad_in, const Tensor& grad_gamma,
                const Tensor& grad_beta) override {
    RONDO_CHECK(backward_ != nullptr);
    const void *mean = mean_.data(), *variance = variance_.data(), *gamma = parameters.gamma.data,
               *beta = parameters.beta.data;
    const void *dx = grad_in.data, *dy = grad_out.data;
    if (spec_.scale && spec_.center) {
      backward_->execute(on, {in.data, mean, variance, dy, gamma, beta, grad_gamma.data, grad_beta.data, dx});
    } else if (spec_.scale) {
      backward_->execute(on, {in.data, mean, variance, dy, gamma, grad_gamma.data, dx});
    } else if (spec_.center) {
      backward_->execute(on, {in.data, mean, variance, dy, beta, grad_beta.data, dx});
    } else {
      backward_->execute(on, {in.data, mean, variance, dy, dx});
    }
  }

 private:
  MemoryDesc vector() const { return strided_desc({channels_}, {0}); }

  dnnl::normalization_flags flags() const {
    auto flags = dnnl::normalization_flags::none;
    if (spec_.scale) flags = flags | dnnl::normalization_flags::use_scale;
    if (spec_.center) flags = flags | dnnl::normalization_flags::use_shift;
    if (!training_) flags = flags | dnnl::normalization_flags::use_global_stats;
    return flags;
  }
  dnnl::batch_normalization_forward::primitive_desc make_forward(const MemoryDesc& data) const {
    const auto kind = training_ ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    return {{kind, data, spec_.epsilon, flags()}, base_attributes(), context_->engine};
  }
  void make_backward(const MemoryDesc& data, const dnnl::batch_normalization_forward::primitive_desc& hint) {
    const bool parameters = spec_.scale || spec_.center;
    const dnnl::batch_normalization_backward::primitive_desc backward(
        {parameters ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data, data, data, spec_.epsilon,
         flags()},
        base_attributes(), context_->engine, hint);
    std::vector<Operation::Operand> operands{{DNNL_ARG_SRC, data}};
    for (const int argument : {DNNL_ARG_MEAN, DNNL_ARG_VARIANCE}) operands.push_back({argument, vector()});
    operands.push_back({DNNL_ARG_DIFF_DST, data});
    if (spec_.scale) operands.push_back({DNNL_ARG_SCALE, vector()});
    // Not needed for the gradients, but oneDNN 2.6 counts it among the arguments.
    if (spec_.center) operands.push_back({DNNL_ARG_SHIFT, vector()});
    if (spec_.scale) operands.push_back({DNNL_ARG_DIFF_SCALE, vector()});
    if (spec_.center) operands.push_back({DNNL_ARG_DIFF_SHIFT, vector()});
    operands.push_back({DNNL_ARG_DIFF_SRC, data});
    backward_ = std::make_unique<Operation>(context_, backward, operands);
  }

  void move_statistics(const BatchNormParameters& parameters) const {
    const auto count = static_cast<double>(spec_.input.elements() / channels_);
    const bool corrected = spec_.input.shape.rank() == 4 && count > 1.0;
    const auto correction = static_cast<float>(corrected ? count / (count - 1.0) : 1.0);
    const float keep = spec_.momentum, take = 1.0f - spec_.momentum;
    auto *mean = parameters.moving_mean.as<float>(), *variance = parameters.moving_variance.as<float>();
    for (int64_t c = 0; c < channels_; ++c) {
      mean[c] = keep * mean[c] + take * mean_.as<float>()[c];
      variance[c] = keep * variance[c] + take * (variance_.as<float>()[c] * correction);
    }
  }

  ContextPtr context_;
  BatchNormSpec spec_;
  bool training_;
  int64_t channels_;
  TensorDesc desc_;
  Buffer mean_, variance_;  // of the batch
  std::unique_ptr<Operation> forward_, backward_;
};

}  // namespace

std::unique_ptr<BatchNormKernel> make_batch_norm(ContextPtr context, const BatchNormSpec& spec) {
  const auto& shape = spec.input.shape;
  require_float(spec.input, "batch normalization");
  require(shape.rank() == 2 || shape.rank() == 4,
          "batch normalization reads (rows, channels) or (batch, height, width, channels), got {}",
          shape.text());
  require(spec.epsilon > 0.0f && spec.momentum >= 0.0f && spec.momentum <= 1.0f,
          "batch normalization: epsilon {} must be positive and momentum {} in [0, 1]", spec.epsilon,
          spec.momentum);
  context->use_threads();
  try {
    return std::make_unique<CpuBatchNorm>(context, spec);
  } catch (const dnnl::error& error) {
    raise<Unavailable>("oneDNN cannot make batch normalization of {}: {}", shape.text(), error.what());
  }
}

}  // namespace rondo::cpu
