#include "models/layers/linear.h"

namespace rondo {

std::vector<ValueId> with_operands(std::vector<ValueId> values,
                                   std::initializer_list<WeightOperand> operands) {
  for (const WeightOperand& operand : operands) {
    if (operand.rounded >= 0) values.push_back(operand.rounded);
  }
  return values;
}

LinearActivation split_activation(ActivationKind own, const Layer::Call& call) {
  if (call.fused) return {.fused = *call.fused};
  if (call.logits || own == ActivationKind::kLinear) return {};
  const auto function = fused_function(own);
  return function ? LinearActivation{.fused = *function} : LinearActivation{.after = own};
}

}  // namespace rondo
