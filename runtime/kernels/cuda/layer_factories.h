// The makers of the kernels that particular layers need; those of factories.h are needed by nearly all
// models.
#pragma once

#include <memory>

#include "runtime/kernels/arrange.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/constraint.h"
#include "runtime/kernels/mask.h"
#include "runtime/kernels/sequence.h"

namespace rondo {
class Conv2DKernel;
struct Conv2DSpec;
}  // namespace rondo

namespace rondo::cuda {

class Context;
using ContextPtr = std::shared_ptr<Context>;

// For as many groups as channels, more than one; `spec` has been checked.
std::unique_ptr<Conv2DKernel> make_depthwise(const Conv2DSpec& spec);
std::unique_ptr<PadKernel> make_pad(const PadSpec& spec);
std::unique_ptr<PermuteKernel> make_permute(const PermuteSpec& spec);
std::unique_ptr<BinaryKernel> make_binary(const BinarySpec& spec);
std::unique_ptr<PenaltyKernel> make_penalty(const PenaltySpec& spec);
std::unique_ptr<EmbeddingKernel> make_embedding(const EmbeddingSpec& spec);
std::unique_ptr<LayerNormKernel> make_layer_norm(const ContextPtr& context, const LayerNormSpec& spec);
std::unique_ptr<MatmulKernel> make_matmul(const ContextPtr& context, const MatmulSpec& spec);
std::unique_ptr<GateKernel> make_gates(const GateSpec& spec);
std::unique_ptr<BroadcastKernel> make_broadcast(const BroadcastSpec& spec);
std::unique_ptr<PreluKernel> make_prelu(const PreluSpec& spec);
std::unique_ptr<ConstraintKernel> make_constraint(const ConstraintSpec& spec);
std::unique_ptr<MaskKernel> make_mask(const MaskSpec& spec);
std::unique_ptr<ScoreMaskKernel> make_score_mask(const ScoreMaskSpec& spec);

}  // namespace rondo::cuda
