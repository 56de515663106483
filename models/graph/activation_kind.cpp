#include "models/graph/activation_kind.h"

#include <array>

#include "runtime/base/activations.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

struct Entry {
  std::string_view name;
  ActivationKind kind;
  std::optional<ActivationFunction> function;
};

constexpr std::array<Entry, 14> kActivations{{
    {"linear", ActivationKind::kLinear, Activation::kLinear},
    {"relu", ActivationKind::kRelu, Activation::kRelu},
    {"sigmoid", ActivationKind::kSigmoid, Activation::kSigmoid},
    {"tanh", ActivationKind::kTanh, Activation::kTanh},
    {"softmax", ActivationKind::kSoftmax, std::nullopt},
    {"elu", ActivationKind::kElu, Activation::kElu},
    {"selu", ActivationKind::kSelu, Activation::kSelu},
    {"softplus", ActivationKind::kSoftplus, Activation::kSoftplus},
    {"softsign", ActivationKind::kSoftsign, Activation::kSoftsign},
    {"hard_sigmoid", ActivationKind::kHardSigmoid, Activation::kHardSigmoid},
    {"exponential", ActivationKind::kExponential, Activation::kExponential},
    {"swish", ActivationKind::kSwish, Activation::kSwish},
    {"gelu", ActivationKind::kGelu, Activation::kGelu},
    {"relu6", ActivationKind::kRelu6, ActivationFunction::clipped_relu(6.0f, 0.0f, 0.0f)},
}};

const Entry& entry(ActivationKind kind) {
  for (const Entry& candidate : kActivations) {
    if (candidate.kind == kind) return candidate;
  }
  raise<InternalError>("unknown activation {}", static_cast<int>(kind));
}

}  // namespace

ActivationKind activation_by_name(std::string_view name, std::string_view where) {
  if (name.empty()) return ActivationKind::kLinear;
  std::string known;
  for (const Entry& candidate : kActivations) {
    if (candidate.name == name) return candidate.kind;
    known += known.empty() ? "" : ", ";
    known += candidate.name;
  }
  raise<InvalidArgument>("{}: unknown activation \"{}\"; choose one of {}", where, name, known);
}

std::string_view activation_name(ActivationKind kind) {
  return entry(kind).name;
}

std::optional<Activation> fused_function(ActivationKind kind) {
  const auto& function = entry(kind).function;
  return function && fusible(function->kind) ? std::optional(function->kind) : std::nullopt;
}

std::optional<ActivationFunction> elementwise(ActivationKind kind) {
  return entry(kind).function;
}

}  // namespace rondo
