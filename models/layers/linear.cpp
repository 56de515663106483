#include "models/layers/linear.h"

namespace rondo {

LinearActivation split_activation(ActivationKind own, const Layer::Call& call) {
  if (call.fused) return {.fused = *call.fused};
  if (call.logits || own == ActivationKind::kLinear) return {};
  const auto function = elementwise(own);
  return function ? LinearActivation{.fused = *function} : LinearActivation{.after = own};
}

}  // namespace rondo
