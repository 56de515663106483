#include "runtime/kernels/cpu/cpu_backend.h"

#include <fmt/core.h>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/layer_factories.h"

namespace rondo {
namespace cpu {

void require_float(const TensorDesc& desc, const char* what) {
  require(desc.dtype == DType::kF32, "{} works on float32, got {}", what, dtype_name(desc.dtype));
  require(desc.shape.rank() >= 1 && desc.elements() > 0, "{} needs at least one element, got {}", what,
          desc.shape.text());
}

void require_canonical(const TensorDesc& desc, const char* what) {
  require_float(desc, what);
  require(desc.layout.canonical(), "{} works on the canonical layout, got \"{}\": reorder before it", what,
          desc.layout.text());
}

namespace {

class CpuBackend final : public KernelBackend {
 public:
  explicit CpuBackend(Device& device) : context_(std::make_shared<Context>(device)) {}

  Device& device() const override { return context_->device; }
  std::string name() const override {
    return fmt::format("oneDNN {}, {}", onednn_version(),
                       cpu_instruction_set_name(effective_cpu_instruction_set()));
  }

  std::unique_ptr<Conv2DKernel> conv2d(const Conv2DSpec& spec) override {
    return make_conv2d(context_, spec);
  }
  std::unique_ptr<DenseKernel> dense(const DenseSpec& spec) override { return make_dense(context_, spec); }
  std::unique_ptr<Pool2DKernel> pool2d(const Pool2DSpec& spec) override {
    return make_pool2d(context_, spec);
  }
  std::unique_ptr<BatchNormKernel> batch_norm(const BatchNormSpec& spec) override {
    return make_batch_norm(context_, spec);
  }
  std::unique_ptr<ActivationKernel> activation(const ActivationFunction& function,
                                               const TensorDesc& desc) override {
    return make_activation(context_, function, desc);
  }
  std::unique_ptr<SoftmaxKernel> softmax(const TensorDesc& desc) override {
    return make_softmax(context_, desc);
  }
  std::unique_ptr<DropoutKernel> dropout(const DropoutSpec& spec) override {
    return make_dropout(context_, spec);
  }
  std::unique_ptr<AddKernel> add(const TensorDesc& desc) override { return make_add(context_, desc); }
  std::unique_ptr<ConcatKernel> concat(const ConcatSpec& spec) override {
    return make_concat(context_, spec);
  }
  std::unique_ptr<LossKernel> loss(const LossSpec& spec) override { return make_loss(context_, spec); }
  std::unique_ptr<MetricKernel> metric(const MetricSpec& spec) override {
    return make_metric(context_, spec);
  }
  std::unique_ptr<UpdateKernel> update(const UpdateSpec& spec) override {
    return make_update(context_, spec);
  }
  std::unique_ptr<SquareSumKernel> square_sum(float clip_value) override {
    return make_square_sum(context_, clip_value);
  }
  std::unique_ptr<ClipKernel> clip(double limit) override { return make_clip(context_, limit); }
  std::unique_ptr<TailKernel> tail() override { return make_tail(context_); }
  std::unique_ptr<LossScaleKernel> loss_scale(const LossScaling& scaling) override {
    return make_loss_scale(scaling);
  }
  std::unique_ptr<ReorderKernel> reorder(const TensorDesc& from, const TensorDesc& to) override {
    return make_reorder_kernel(context_, from, to);
  }

  std::unique_ptr<PadKernel> pad(const PadSpec& spec) override { return make_pad(context_, spec); }
  std::unique_ptr<PermuteKernel> permute(const PermuteSpec& spec) override {
    return make_permute(context_, spec);
  }
  std::unique_ptr<BinaryKernel> binary(const BinarySpec& spec) override {
    return make_binary(context_, spec);
  }
  std::unique_ptr<PenaltyKernel> penalty(const PenaltySpec& spec) override {
    return make_penalty(context_, spec);
  }
  std::unique_ptr<EmbeddingKernel> embedding(const EmbeddingSpec& spec) override {
    return make_embedding(context_, spec);
  }
  std::unique_ptr<LayerNormKernel> layer_norm(const LayerNormSpec& spec) override {
    return make_layer_norm(context_, spec);
  }
  std::unique_ptr<MatmulKernel> matmul(const MatmulSpec& spec) override {
    return make_matmul(context_, spec);
  }
  std::unique_ptr<GateKernel> gates(const GateSpec& spec) override { return make_gates(context_, spec); }
  std::unique_ptr<BroadcastKernel> broadcast(const BroadcastSpec& spec) override {
    return make_broadcast(context_, spec);
  }
  std::unique_ptr<PreluKernel> prelu(const PreluSpec& spec) override { return make_prelu(context_, spec); }
  std::unique_ptr<ConstraintKernel> constraint(const ConstraintSpec& spec) override {
    return make_constraint(context_, spec);
  }
  std::unique_ptr<MaskKernel> mask(const MaskSpec& spec) override { return make_mask(context_, spec); }
  std::unique_ptr<ScoreMaskKernel> score_mask(const ScoreMaskSpec& spec) override {
    return make_score_mask(context_, spec);
  }

 private:
  ContextPtr context_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<KernelBackend> make_cpu_backend(Device& device) {
  require(device.kind() == DeviceKind::kCpu, "the oneDNN backend needs a host device, got {}", device.name());
  return std::make_unique<cpu::CpuBackend>(device);
}

}  // namespace rondo
