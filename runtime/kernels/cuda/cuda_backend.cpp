#include "runtime/kernels/cuda/cuda_backend.h"

#include <fmt/core.h>

#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/layer_factories.h"

namespace rondo {
namespace cuda {
namespace {

class CudaBackend final : public KernelBackend {
 public:
  explicit CudaBackend(Device& device) : context_(std::make_shared<Context>(device)) {}

  Device& device() const override { return context_->device; }
  std::string name() const override {
    return fmt::format("cuDNN {}, cuBLAS {}", cudnn_version(), cublas_version());
  }
  bool computes_in(DType dtype) const override {
    return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
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
  bool fuses_norm(DType) const override { return true; }
  std::unique_ptr<NormReluKernel> norm_relu(const NormReluSpec& spec) override {
    return make_norm_relu(context_, spec);
  }
  std::unique_ptr<ActivationKernel> activation(const ActivationFunction& function,
                                               const TensorDesc& desc) override {
    return make_activation(function, desc);
  }
  std::unique_ptr<SoftmaxKernel> softmax(const TensorDesc& desc) override { return make_softmax(desc); }
  std::unique_ptr<DropoutKernel> dropout(const DropoutSpec& spec) override {
    return make_dropout(context_, spec);
  }
  std::unique_ptr<AddKernel> add(const TensorDesc& desc) override { return make_add(desc); }
  std::unique_ptr<ConcatKernel> concat(const ConcatSpec& spec) override { return make_concat(spec); }
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
  std::unique_ptr<ClipKernel> clip(double limit) override { return make_clip(limit); }
  std::unique_ptr<TailKernel> tail() override { return make_tail(); }
  std::unique_ptr<LossScaleKernel> loss_scale(const LossScaling& scaling) override {
    return make_loss_scale(scaling);
  }
  std::unique_ptr<RoundKernel> round(DType to) override { return make_round(to); }
  std::unique_ptr<ReorderKernel> reorder(const TensorDesc& from, const TensorDesc& to) override {
    return make_reorder(from, to);
  }

  std::unique_ptr<PadKernel> pad(const PadSpec& spec) override { return make_pad(spec); }
  std::unique_ptr<PermuteKernel> permute(const PermuteSpec& spec) override { return make_permute(spec); }
  std::unique_ptr<BinaryKernel> binary(const BinarySpec& spec) override { return make_binary(spec); }
  std::unique_ptr<PenaltyKernel> penalty(const PenaltySpec& spec) override { return make_penalty(spec); }
  std::unique_ptr<EmbeddingKernel> embedding(const EmbeddingSpec& spec) override {
    return make_embedding(spec);
  }
  std::unique_ptr<LayerNormKernel> layer_norm(const LayerNormSpec& spec) override {
    return make_layer_norm(context_, spec);
  }
  std::unique_ptr<MatmulKernel> matmul(const MatmulSpec& spec) override {
    return make_matmul(context_, spec);
  }
  std::unique_ptr<GateKernel> gates(const GateSpec& spec) override { return make_gates(spec); }
  std::unique_ptr<BroadcastKernel> broadcast(const BroadcastSpec& spec) override {
    return make_broadcast(spec);
  }
  std::unique_ptr<PreluKernel> prelu(const PreluSpec& spec) override { return make_prelu(spec); }
  std::unique_ptr<ConstraintKernel> constraint(const ConstraintSpec& spec) override {
    return make_constraint(spec);
  }
  std::unique_ptr<MaskKernel> mask(const MaskSpec& spec) override { return make_mask(spec); }
  std::unique_ptr<ScoreMaskKernel> score_mask(const ScoreMaskSpec& spec) override {
    return make_score_mask(spec);
  }

 private:
  ContextPtr context_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<KernelBackend> make_cuda_backend(Device& device) {
  require(device.kind() == DeviceKind::kCuda, "the CUDA backend needs a GPU, got {}", device.name());
  return std::make_unique<cuda::CudaBackend>(device);
}

std::string cudnn_version() {
  const size_t version = cudnnGetVersion();  // 91900
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string cublas_version() {
  const size_t version = cublasLtGetVersion();  // 130100
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace rondo
