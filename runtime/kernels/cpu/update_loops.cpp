#include "runtime/kernels/cpu/update_loops.h"

#include <algorithm>

#include "runtime/kernels/cpu/loops.h"

namespace rondo::cpu {
namespace {

template <class Rule>
[[gnu::always_inline]] inline void update_all(const Rule& rule_at, const UpdateRates& rates_at,
                                              const GradientInput& input_at, const UpdateRange& range) {
  const Rule rule = rule_at;
  const UpdateRates rates = rates_at;
  const GradientInput input = input_at;
  const float* g = range.g;
  float* w = range.w;
  float *first = range.slots[0], *second = range.slots[1], *third = range.slots[2];
  const int64_t count = range.count;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float slots[3] = {};
    if constexpr (Rule::kSlots > 0) slots[0] = first[i];
    if constexpr (Rule::kSlots > 1) slots[1] = second[i];
    if constexpr (Rule::kSlots > 2) slots[2] = third[i];
    float weight = w[i];
    rule(rates, input.enter(g[i]), weight, slots);
    w[i] = weight;
    if constexpr (Rule::kSlots > 0) first[i] = slots[0];
    if constexpr (Rule::kSlots > 1) second[i] = slots[1];
    if constexpr (Rule::kSlots > 2) third[i] = slots[2];
  }
}

template <class Rule>
[[gnu::always_inline]] inline void direct_all(const Rule& rule_at, const UpdateRates& rates_at,
                                              const GradientInput& input_at, const UpdateRange& range,
                                              float* out) {
  const Rule rule = rule_at;
  const UpdateRates rates = rates_at;
  const GradientInput input = input_at;
  const float *g = range.g, *w = range.w;
  float *first = range.slots[0], *second = range.slots[1];
  const int64_t count = range.count;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    float slots[2] = {first[i], 0.0f};
    if constexpr (Rule::kSlots > 1) slots[1] = second[i];
    out[i] = rule.direction(rates, input.enter(g[i]), w[i], slots);
    first[i] = slots[0];
    if constexpr (Rule::kSlots > 1) second[i] = slots[1];
  }
}

}  // namespace

#define RONDO_UPDATE(...)                                                              \
  RONDO_CLONES void run_update(const __VA_ARGS__& rule, const UpdateRates& rates,      \
                               const GradientInput& input, const UpdateRange& range) { \
    update_all(rule, rates, input, range);                                             \
  }
RONDO_UPDATE(update::Sgd<false>)
RONDO_UPDATE(update::Sgd<true>)
RONDO_UPDATE(update::RmsProp<false, false>)
RONDO_UPDATE(update::RmsProp<false, true>)
RONDO_UPDATE(update::RmsProp<true, false>)
RONDO_UPDATE(update::RmsProp<true, true>)
RONDO_UPDATE(update::Adagrad)
RONDO_UPDATE(update::Adadelta)
RONDO_UPDATE(update::Adam<false, false>)
RONDO_UPDATE(update::Adam<false, true>)
RONDO_UPDATE(update::Adam<true, false>)
RONDO_UPDATE(update::Adam<true, true>)
RONDO_UPDATE(update::Adamax)
RONDO_UPDATE(update::Nadam)
RONDO_UPDATE(update::Lars)
RONDO_UPDATE(update::Lamb)
#undef RONDO_UPDATE

RONDO_CLONES void run_direction(const update::Lars& rule, const UpdateRates& rates,
                                const GradientInput& input, const UpdateRange& range, float* out) {
  direct_all(rule, rates, input, range, out);
}
RONDO_CLONES void run_direction(const update::Lamb& rule, const UpdateRates& rates,
                                const GradientInput& input, const UpdateRange& range, float* out) {
  direct_all(rule, rates, input, range, out);
}

double cut_square_sum(const GradientInput& input, const float* g, int64_t count) {
  constexpr int64_t kTile = 1024;
  float tile[kTile];
  double sum = 0.0;
  for (int64_t at = 0; at < count; at += kTile) {
    const int64_t length = std::min(kTile, count - at);
    for (int64_t i = 0; i < length; ++i) tile[i] = input.cut_finite(g[at + i]);
    sum += dot_floats(tile, tile, length);
  }
  return sum;
}

}  // namespace rondo::cpu
