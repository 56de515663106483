// The loops of optimizer updates over floats, compiled for several instruction sets: see loops.h.
#pragma once

#include <cstdint>

#include "runtime/base/update_rules.h"

namespace rondo::cpu {

struct UpdateRange {
  const float* g = nullptr;
  float* w = nullptr;
  float* slots[3] = {nullptr, nullptr, nullptr};
  int64_t count = 0;
};

// Updates every element of the range.
void run_update(const update::Sgd<false>&, const UpdateRates&, const GradientInput&, const UpdateRange&);
void run_update(const update::Sgd<true>&, const UpdateRates&, const GradientInput&, const UpdateRange&);
void run_update(const update::RmsProp<false, false>&, const UpdateRates&, const GradientInput&,
                const UpdateRange&);
void run_update(const update::RmsProp<false, true>&, const UpdateRates&, const GradientInput&,
                const UpdateRange&);
void run_update(const update::RmsProp<true, false>&, const UpdateRates&, const GradientInput&,
                const UpdateRange&);
void run_update(const update::RmsProp<true, true>&, const UpdateRates&, const GradientInput&,
                const UpdateRange&);
void run_update(const update::Adagrad&, const UpdateRates&, const GradientInput&, const UpdateRange&);
void run_update(const update::Adadelta&, const UpdateRates&, const GradientInput&, const UpdateRange&);
void run_update(const update::Adam<false, false>&, const UpdateRates&, const GradientInput&,
                const UpdateRange&);
void run_update(const update::Adam<false, true>&, const UpdateRates&, const GradientInput&,
                const UpdateRange&);
void run_update(const update::Adam<true, false>&, const UpdateRates&, const GradientInput&,
                const UpdateRange&);
void run_update(const update::Adam<true, true>&, const UpdateRates&, const GradientInput&,
                const UpdateRange&);
void run_update(const update::Adamax&, const UpdateRates&, const GradientInput&, const UpdateRange&);
void run_update(const update::Nadam&, const UpdateRates&, const GradientInput&, const UpdateRange&);
void run_update(const update::Lars&, const UpdateRates&, const GradientInput&, const UpdateRange&);
void run_update(const update::Lamb&, const UpdateRates&, const GradientInput&, const UpdateRange&);

// The directions of a rule with kAdapts, into `out` (range.count floats).
void run_direction(const update::Lars&, const UpdateRates&, const GradientInput&, const UpdateRange&,
                   float* out);
void run_direction(const update::Lamb&, const UpdateRates&, const GradientInput&, const UpdateRange&,
                   float* out);

// Of cut_finite(g), in an order that `count` decides.
double cut_square_sum(const GradientInput& input, const float* g, int64_t count);

}  // namespace rondo::cpu
