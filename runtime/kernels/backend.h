#pragma once

#include <memory>
#include <string>

#include "runtime/tensor/tensor.h"

namespace rondo {

class ActivationKernel;
class AddKernel;
class BatchNormKernel;
class BinaryKernel;
class BroadcastKernel;
class ClipKernel;
class ConcatKernel;
class ConstraintKernel;
class Conv2DKernel;
class DenseKernel;
class Device;
class DropoutKernel;
class EmbeddingKernel;
class GateKernel;
class LayerNormKernel;
class LossKernel;
class MatmulKernel;
class LossScaleKernel;
class MaskKernel;
class MetricKernel;
class NormReluKernel;
class PadKernel;
class PenaltyKernel;
class PermuteKernel;
class Pool2DKernel;
class PreluKernel;
class ReorderKernel;
class RoundKernel;
class ScoreMaskKernel;
class SoftmaxKernel;
class SquareSumKernel;
class TailKernel;
class UpdateKernel;
struct ActivationFunction;
struct BatchNormSpec;
struct BinarySpec;
struct BroadcastSpec;
struct ConcatSpec;
struct ConstraintSpec;
struct Conv2DSpec;
struct DenseSpec;
struct DropoutSpec;
struct EmbeddingSpec;
struct GateSpec;
struct LayerNormSpec;
struct LossScaling;
struct LossSpec;
struct MaskSpec;
struct MatmulSpec;
struct MetricSpec;
struct NormReluSpec;
struct PadSpec;
struct PenaltySpec;
struct PermuteSpec;
struct Pool2DSpec;
struct PreluSpec;
struct ScoreMaskSpec;
struct UpdateSpec;

// Makes the kernels of one device. Every function throws InvalidArgument for shapes that make no sense and
// Unavailable for what the backend does not support; the message names the operation and the shapes.
class KernelBackend {
 public:
  virtual ~KernelBackend() = default;
  virtual Device& device() const = 0;
  virtual std::string name() const = 0;  // for banners: "oneDNN 2.6.3, AVX2"
  // Layers can compute in this type; float32 in any case.
  virtual bool computes_in(DType dtype) const { return dtype == DType::kF32; }

  virtual std::unique_ptr<Conv2DKernel> conv2d(const Conv2DSpec& spec) = 0;
  virtual std::unique_ptr<DenseKernel> dense(const DenseSpec& spec) = 0;
  virtual std::unique_ptr<Pool2DKernel> pool2d(const Pool2DSpec& spec) = 0;
  virtual std::unique_ptr<BatchNormKernel> batch_norm(const BatchNormSpec& spec) = 0;
  // The backend has norm_relu() for tensors of this type, and that is its best way. Else that throws
  // Unavailable.
  virtual bool fuses_norm(DType /*dtype*/) const { return false; }
  virtual std::unique_ptr<NormReluKernel> norm_relu(const NormReluSpec& spec);
  // The kernel's desc() may be canonical where `desc` is not: when the layout has padding that f(0) != 0
  // would spoil.
  virtual std::unique_ptr<ActivationKernel> activation(const ActivationFunction& function,
                                                       const TensorDesc& desc) = 0;
  virtual std::unique_ptr<SoftmaxKernel> softmax(const TensorDesc& desc) = 0;
  virtual std::unique_ptr<DropoutKernel> dropout(const DropoutSpec& spec) = 0;
  virtual std::unique_ptr<AddKernel> add(const TensorDesc& desc) = 0;
  virtual std::unique_ptr<ConcatKernel> concat(const ConcatSpec& spec) = 0;
  virtual std::unique_ptr<LossKernel> loss(const LossSpec& spec) = 0;
  virtual std::unique_ptr<MetricKernel> metric(const MetricSpec& spec) = 0;
  virtual std::unique_ptr<UpdateKernel> update(const UpdateSpec& spec) = 0;
  virtual std::unique_ptr<SquareSumKernel> square_sum(float clip_value = 0.0f) = 0;
  virtual std::unique_ptr<ClipKernel> clip(double limit) = 0;
  virtual std::unique_ptr<TailKernel> tail() = 0;
  virtual std::unique_ptr<LossScaleKernel> loss_scale(const LossScaling& scaling) = 0;
  // To bfloat16 or float16, where the backend computes in it.
  virtual std::unique_ptr<RoundKernel> round(DType to);
  virtual std::unique_ptr<ReorderKernel> reorder(const TensorDesc& from, const TensorDesc& to) = 0;

  // A backend may lack these: they throw Unavailable then.
  virtual std::unique_ptr<PadKernel> pad(const PadSpec& spec);
  virtual std::unique_ptr<PermuteKernel> permute(const PermuteSpec& spec);
  virtual std::unique_ptr<BinaryKernel> binary(const BinarySpec& spec);
  virtual std::unique_ptr<PenaltyKernel> penalty(const PenaltySpec& spec);
  virtual std::unique_ptr<EmbeddingKernel> embedding(const EmbeddingSpec& spec);
  virtual std::unique_ptr<LayerNormKernel> layer_norm(const LayerNormSpec& spec);
  virtual std::unique_ptr<MatmulKernel> matmul(const MatmulSpec& spec);
  virtual std::unique_ptr<GateKernel> gates(const GateSpec& spec);
  virtual std::unique_ptr<ConstraintKernel> constraint(const ConstraintSpec& spec);
  virtual std::unique_ptr<BroadcastKernel> broadcast(const BroadcastSpec& spec);
  virtual std::unique_ptr<PreluKernel> prelu(const PreluSpec& spec);
  virtual std::unique_ptr<MaskKernel> mask(const MaskSpec& spec);
  virtual std::unique_ptr<ScoreMaskKernel> score_mask(const ScoreMaskSpec& spec);
};

}  // namespace rondo
