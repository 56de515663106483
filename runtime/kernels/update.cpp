#include "runtime/kernels/update.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace rondo {
namespace {

constexpr int64_t kChunk = 16384;  // elements

template <class Go>
auto visit_rule(const UpdateSpec& spec, const Go& go) {
  return std::visit([&](const auto& settings) { return with_rule(settings, go); }, spec.rule);
}

bool adapts(const UpdateSpec& spec) {
  return visit_rule(spec, [](const auto& rule) { return std::decay_t<decltype(rule)>::kAdapts; });
}

bool decays(const UpdateSpec& spec) {
  const auto* adam = std::get_if<AdamUpdate>(&spec.rule);
  return adam != nullptr && adam->weight_decay != 0.0f;
}

}  // namespace

int slot_count(const UpdateSpec& spec) {
  return visit_rule(spec, [](const auto& rule) { return std::decay_t<decltype(rule)>::kSlots; });
}

bool works_by_tensor(const UpdateSpec& spec) {
  if (spec.clip_norm > 0.0f || adapts(spec)) return true;
  return decays(spec) &&
         std::any_of(spec.tensors.begin(), spec.tensors.end(), [](const TensorRange& t) { return t.plain; });
}

void check_update(const UpdateSpec& spec) {
  require(!(spec.clip_value < 0.0f), "clip_value must not be negative, got {}", spec.clip_value);
  require(!(spec.clip_norm < 0.0f), "clip_norm must not be negative, got {}", spec.clip_norm);
  if (!works_by_tensor(spec)) return;
  require(!spec.tensors.empty(), "an update by tensor needs the tensors of its span");
  int64_t end = 0;
  for (const TensorRange& tensor : spec.tensors) {
    require(tensor.offset >= end && tensor.count >= 0,
            "tensors of an update must follow each other, but one of {} elements at {} comes after {}",
            tensor.count, tensor.offset, end);
    end = tensor.offset + tensor.count;
  }
}

std::vector<UpdateChunk> update_chunks(const UpdateSpec& spec) {
  std::vector<UpdateChunk> chunks;
  for (size_t t = 0; t < spec.tensors.size(); ++t) {
    const TensorRange& tensor = spec.tensors[t];
    for (int64_t at = 0; at < tensor.count; at += kChunk) {
      chunks.push_back({.begin = tensor.offset + at,
                        .count = std::min(kChunk, tensor.count - at),
                        .tensor = static_cast<int64_t>(t)});
    }
  }
  return chunks;
}

}  // namespace rondo
