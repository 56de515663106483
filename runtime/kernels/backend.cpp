#include "runtime/kernels/backend.h"

#include "runtime/base/error.h"
#include "runtime/kernels/arrange.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/constraint.h"
#include "runtime/kernels/mask.h"
#include "runtime/kernels/sequence.h"

namespace rondo {
namespace {

[[noreturn]] void lacks(const KernelBackend& backend, const char* what) {
  raise<Unavailable>("the backend {} has no kernel for {}", backend.name(), what);
}

}  // namespace

std::unique_ptr<PadKernel> KernelBackend::pad(const PadSpec&) {
  lacks(*this, "padding");
}
std::unique_ptr<PermuteKernel> KernelBackend::permute(const PermuteSpec&) {
  lacks(*this, "permuting axes");
}
std::unique_ptr<BinaryKernel> KernelBackend::binary(const BinarySpec&) {
  lacks(*this, "joining two tensors element by element");
}
std::unique_ptr<PenaltyKernel> KernelBackend::penalty(const PenaltySpec&) {
  lacks(*this, "penalties on weights");
}
std::unique_ptr<EmbeddingKernel> KernelBackend::embedding(const EmbeddingSpec&) {
  lacks(*this, "embeddings");
}
std::unique_ptr<LayerNormKernel> KernelBackend::layer_norm(const LayerNormSpec&) {
  lacks(*this, "layer normalization");
}
std::unique_ptr<MatmulKernel> KernelBackend::matmul(const MatmulSpec&) {
  lacks(*this, "products of many matrices");
}
std::unique_ptr<GateKernel> KernelBackend::gates(const GateSpec&) {
  lacks(*this, "recurrent gates");
}
std::unique_ptr<ConstraintKernel> KernelBackend::constraint(const ConstraintSpec&) {
  lacks(*this, "constraints");
}
std::unique_ptr<BroadcastKernel> KernelBackend::broadcast(const BroadcastSpec&) {
  lacks(*this, "repeating a tensor");
}
std::unique_ptr<PreluKernel> KernelBackend::prelu(const PreluSpec&) {
  lacks(*this, "PReLU");
}
std::unique_ptr<MaskKernel> KernelBackend::mask(const MaskSpec&) {
  lacks(*this, "masks");
}
std::unique_ptr<ScoreMaskKernel> KernelBackend::score_mask(const ScoreMaskSpec&) {
  lacks(*this, "masks of scores");
}

}  // namespace rondo
