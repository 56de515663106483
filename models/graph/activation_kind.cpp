#include "models/graph/activation_kind.h"

#include <array>

#include "runtime/base/error.h"
#include "runtime/base/functors.h"

namespace rondo {
namespace {

struct Entry {
  std::string_view name;
  ActivationKind kind;
  std::optional<Activation> function;
};

constexpr std::array<Entry, 5> kActivations{{
    {"linear", ActivationKind::kLinear, Activation::kLinear},
    {"relu", ActivationKind::kRelu, Activation::kRelu},
    {"sigmoid", ActivationKind::kSigmoid, Activation::kSigmoid},
    {"tanh", ActivationKind::kTanh, Activation::kTanh},
    {"softmax", ActivationKind::kSoftmax, std::nullopt},
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

std::optional<Activation> elementwise(ActivationKind kind) {
  return entry(kind).function;
}

}  // namespace rondo
