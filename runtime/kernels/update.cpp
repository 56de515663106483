#include "runtime/kernels/update.h"

namespace rondo {

int slot_count(const UpdateSpec& spec) {
  if (const auto* sgd = std::get_if<SgdUpdate>(&spec.rule)) return sgd->momentum != 0.0f ? 1 : 0;
  return std::holds_alternative<AdamUpdate>(spec.rule) ? 2 : 1;
}

}  // namespace rondo
