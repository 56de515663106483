// The makers of the kernels that particular layers need; those of factories.h are needed by nearly all
// models.
#pragma once

#include <memory>

#include "runtime/kernels/arrange.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/constraint.h"
#include "runtime/kernels/mask.h"
#include "runtime/kernels/sequence.h"

namespace rondo::cpu {

struct Context;
using ContextPtr = std::shared_ptr<const Context>;

std::unique_ptr<PadKernel> make_pad(ContextPtr context, const PadSpec& spec);
std::unique_ptr<PermuteKernel> make_permute(ContextPtr context, const PermuteSpec& spec);
std::unique_ptr<BinaryKernel> make_binary(ContextPtr context, const BinarySpec& spec);
std::unique_ptr<PenaltyKernel> make_penalty(ContextPtr context, const PenaltySpec& spec);
std::unique_ptr<EmbeddingKernel> make_embedding(ContextPtr context, const EmbeddingSpec& spec);
std::unique_ptr<LayerNormKernel> make_layer_norm(ContextPtr context, const LayerNormSpec& spec);
std::unique_ptr<MatmulKernel> make_matmul(ContextPtr context, const MatmulSpec& spec);
std::unique_ptr<GateKernel> make_gates(ContextPtr context, const GateSpec& spec);
std::unique_ptr<BroadcastKernel> make_broadcast(ContextPtr context, const BroadcastSpec& spec);
std::unique_ptr<PreluKernel> make_prelu(ContextPtr context, const PreluSpec& spec);
std::unique_ptr<ConstraintKernel> make_constraint(ContextPtr context, const ConstraintSpec& spec);
std::unique_ptr<MaskKernel> make_mask(ContextPtr context, const MaskSpec& spec);
std::unique_ptr<ScoreMaskKernel> make_score_mask(ContextPtr context, const ScoreMaskSpec& spec);

}  // namespace rondo::cpu
