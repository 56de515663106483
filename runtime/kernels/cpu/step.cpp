#include "runtime/kernels/step.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/loss_scale.h"

namespace rondo::cpu {
namespace {

class CpuClip final : public ClipKernel {
 public:
  explicit CpuClip(double limit) : limit_(limit) {}
  std::string implementation() const override { return "loop"; }

  void run(const Execution&, const double* square_sums, int64_t count, StepState* state,
           double* norm_out) override {
    double sum = 0.0;
    for (int64_t i = 0; i < count; ++i) sum += square_sums[i];
    const double norm = std::sqrt(sum) / static_cast<double>(state->loss_scale);
    state->clip_scale *= static_cast<float>(limit_ / std::max(norm, limit_));  // a NaN stays one
    *norm_out = norm;
  }

 private:
  double limit_;
};

class CpuTail final : public TailKernel {
 public:
  std::string implementation() const override { return "loop"; }

  void run(const Execution& on, const double* sums, int64_t count, float* tail) override {
    RONDO_CHECK(on.state != nullptr);
    for (int64_t i = 0; i < count; ++i) tail[i] = static_cast<float>(sums[i]);
    tail[count] = on.state->vote;
  }
};

class CpuLossScale final : public LossScaleKernel {
 public:
  explicit CpuLossScale(const LossScaling& scaling) : scaling_(scaling) {}
  std::string implementation() const override { return "loop"; }

  void begin(const Execution&, const LossScale* scale, StepState* state) override {
    begin_scaled_step(*scale, *state);
  }
  void decide(const Execution&, const double* square_sums, int64_t count, LossScale* scale,
              StepState* state) override {
    double sum = 0.0;
    for (int64_t i = 0; i < count; ++i) sum += square_sums[i];
    decide_scaled_step(scaling_, sum, *scale, *state);
  }

 private:
  LossScaling scaling_;
};

}  // namespace

std::unique_ptr<ClipKernel> make_clip(ContextPtr, double limit) {
  require(limit > 0.0, "the limit of a gradient norm must be positive, got {}", limit);
  return std::make_unique<CpuClip>(limit);
}

std::unique_ptr<TailKernel> make_tail(ContextPtr) {
  return std::make_unique<CpuTail>();
}

std::unique_ptr<LossScaleKernel> make_loss_scale(const LossScaling& scaling) {
  check_loss_scaling(scaling);
  return std::make_unique<CpuLossScale>(scaling);
}

}  // namespace rondo::cpu
