#include "runtime/kernels/update.h"

#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/parallel.h"

namespace rondo::cpu {
namespace {

class CpuUpdate final : public UpdateKernel {
 public:
  CpuUpdate(const ContextPtr& context, const UpdateSpec& spec)
      : threads_(context->threads), spec_(spec), slots_(slot_count(spec)) {}
  std::string implementation() const override { return "loop"; }

  void run(const Execution& on, const UpdateSpan& span) override {
    RONDO_CHECK(on.state != nullptr);
    if (on.state->skip != 0) return;
    RONDO_CHECK((slots_ < 1 || span.slots[0] != nullptr) && (slots_ < 2 || span.slots[1] != nullptr));
    const GradientInput input{on.state->gradient_scale, spec_.clip_value > 0.0f
                                                            ? spec_.clip_value
                                                            : std::numeric_limits<float>::infinity()};
    const float rate = learning_rate(*on.state);
    parallel_ranges(threads_, span.count, kFloatGrain, [&](int64_t begin, int64_t end) {
      const float* g = span.gradients + begin;
      float* w = span.weights + begin;
      float* first = slots_ > 0 ? span.slots[0] + begin : nullptr;
      float* second = slots_ > 1 ? span.slots[1] + begin : nullptr;
      const int64_t count = end - begin;
      if (const auto* adam = std::get_if<AdamUpdate>(&spec_.rule)) {
        adam_update(*adam, rate, input, g, w, first, second, count);
      } else if (const auto* rmsprop = std::get_if<RmsPropUpdate>(&spec_.rule)) {
        rmsprop_update(*rmsprop, rate, input, g, w, first, count);
      } else if (slots_ == 1) {
        momentum_update(std::get<SgdUpdate>(spec_.rule), rate, input, g, w, first, count);
      } else {
        sgd_update(std::get<SgdUpdate>(spec_.rule), rate, input, g, w, count);
      }
    });
  }

 private:
  // Adam's bias correction goes into the rate.
  float learning_rate(const StepState& state) const {
    const auto* adam = std::get_if<AdamUpdate>(&spec_.rule);
    if (adam == nullptr) return state.learning_rate;
    const auto t = static_cast<double>(state.update);
    return static_cast<float>(static_cast<double>(state.learning_rate) *
                              std::sqrt(1.0 - std::pow(static_cast<double>(adam->beta_2), t)) /
                              (1.0 - std::pow(static_cast<double>(adam->beta_1), t)));
  }

  int threads_;
  UpdateSpec spec_;
  int slots_;
};

// Always cut into the same number of parts, so that the sum does not depend on the number of threads.
class CpuSquareSum final : public SquareSumKernel {
 public:
  explicit CpuSquareSum(const ContextPtr& context) : threads_(context->threads) {}
  std::string implementation() const override { return "loop"; }

  void run(const Execution&, const float* values, int64_t count, double* sum) override {
    constexpr int64_t kParts = 64;
    double parts[kParts] = {};
    const int64_t part = std::max<int64_t>(1024, (count + kParts - 1) / kParts);
    parallel_ranges(count > kFloatGrain ? threads_ : 1, count, part, [&](int64_t begin, int64_t end) {
      parts[begin / part] = dot_floats(values + begin, values + begin, end - begin);
    });
    *sum = 0.0;
    for (const double value : parts) *sum += value;
  }

 private:
  int threads_;
};

}  // namespace

std::unique_ptr<UpdateKernel> make_update(ContextPtr context, const UpdateSpec& spec) {
  require(!(spec.clip_value < 0.0f), "clip_value must not be negative, got {}", spec.clip_value);
  return std::make_unique<CpuUpdate>(context, spec);
}

std::unique_ptr<SquareSumKernel> make_square_sum(ContextPtr context) {
  return std::make_unique<CpuSquareSum>(context);
}

}  // namespace rondo::cpu
