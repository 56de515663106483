#include "runtime/kernels/update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/parallel.h"
#include "runtime/kernels/cpu/update_loops.h"

namespace rondo::cpu {
namespace {

UpdateRange part_of(const UpdateSpan& span, int64_t begin, int64_t count) {
  UpdateRange range{.g = span.gradients + begin, .w = span.weights + begin, .count = count};
  for (size_t s = 0; s < 3; ++s) {
    if (span.slots[s] != nullptr) range.slots[s] = span.slots[s] + begin;
  }
  return range;
}

float limit_of(float clip_value) {
  return clip_value > 0.0f ? clip_value : std::numeric_limits<float>::infinity();
}

template <class Rule>
class CpuUpdate final : public UpdateKernel {
 public:
  CpuUpdate(int threads, const UpdateSpec& spec, const Rule& rule)
      : threads_(threads), rule_(rule), limit_(limit_of(spec.clip_value)), clip_norm_(spec.clip_norm) {
    if (!works_by_tensor(spec)) return;
    chunks_ = update_chunks(spec);
    for (const TensorRange& tensor : spec.tensors) plain_.push_back(tensor.plain);
    squares_.resize(chunks_.size());
    clip_.assign(plain_.size(), 1.0f);
    trust_.assign(plain_.size(), 1.0f);
  }
  std::string implementation() const override { return "loop"; }

  void run(const Execution& on, const UpdateSpan& span) override {
    RONDO_CHECK(on.state != nullptr);
    if (on.state->skip != 0) return;
    for (size_t s = 0; s < static_cast<size_t>(Rule::kSlots); ++s) RONDO_CHECK(span.slots[s] != nullptr);
    const StepState& state = *on.state;
    const UpdateRates rates = rule_.prepare(rate_input(state));
    const GradientInput input{state.gradient_scale, limit_, state.clip_scale};
    if (!plain_.empty()) return by_tensor(span, rates, input);
    parallel_ranges(threads_, span.count, kFloatGrain, [&](int64_t begin, int64_t end) {
      run_update(rule_, rates, input, part_of(span, begin, end - begin));
    });
  }

 private:
  struct Squares {
    double weights = 0.0, directions = 0.0;
  };

  template <class Body>
  void each_chunk(const Body& body) {
    parallel_ranges(threads_, static_cast<int64_t>(chunks_.size()), 1, [&](int64_t begin, int64_t) {
      const auto c = static_cast<size_t>(begin);
      body(chunks_[c], squares_[c]);
    });
  }

  // Calls set(tensor, sums) with what each tensor's chunks add up to, in their order.
  template <class Set>
  void each_tensor(const Set& set) {
    size_t c = 0;
    for (size_t t = 0; t < plain_.size(); ++t) {
      Squares sum;
      for (; c < chunks_.size() && chunks_[c].tensor == static_cast<int64_t>(t); ++c) {
        sum.weights += squares_[c].weights;
        sum.directions += squares_[c].directions;
      }
      set(t, sum);
    }
  }

  UpdateRates rates_of(UpdateRates rates, int64_t tensor) const {
    if (plain_[static_cast<size_t>(tensor)]) rates.decay = 0.0f;
    rates.trust = trust_[static_cast<size_t>(tensor)];
    return rates;
  }
  GradientInput input_of(GradientInput input, int64_t tensor) const {
    input.factor *= clip_[static_cast<size_t>(tensor)];
    return input;
  }

  void by_tensor(const UpdateSpan& span, const UpdateRates& rates, const GradientInput& input) {
    if (clip_norm_ > 0.0f) {
      each_chunk([&](const UpdateChunk& chunk, Squares& squares) {
        squares = {0.0, cut_square_sum(input, span.gradients + chunk.begin, chunk.count)};
      });
      each_tensor([&](size_t t, const Squares& sum) {
        const auto limit = static_cast<double>(clip_norm_);
        clip_[t] = static_cast<float>(limit / std::max(std::sqrt(sum.directions), limit));  // keeps NaN
      });
    }
    if constexpr (Rule::kAdapts) adapt(span, rates, input);
    each_chunk([&](const UpdateChunk& chunk, Squares&) {
      run_update(rule_, rates_of(rates, chunk.tensor), input_of(input, chunk.tensor),
                 part_of(span, chunk.begin, chunk.count));
    });
  }

  void adapt(const UpdateSpan& span, const UpdateRates& rates, const GradientInput& input) {
    constexpr int64_t kTile = 1024;
    each_chunk([&](const UpdateChunk& chunk, Squares& squares) {
      squares = {};
      float tile[kTile];
      for (int64_t at = 0; at < chunk.count; at += kTile) {
        const UpdateRange range = part_of(span, chunk.begin + at, std::min<int64_t>(kTile, chunk.count - at));
        run_direction(rule_, rates_of(rates, chunk.tensor), input_of(input, chunk.tensor), range, tile);
        squares.weights += dot_floats(range.w, range.w, range.count);
        squares.directions += dot_floats(tile, tile, range.count);
      }
    });
    each_tensor([&](size_t t, const Squares& sum) {
      if (plain_[t]) return;
      trust_[t] = static_cast<float>(rule_.factor(rates, std::sqrt(sum.weights), std::sqrt(sum.directions)));
    });
  }

  int threads_;
  Rule rule_;
  float limit_;
  float clip_norm_;
  // Of updates by tensor.
  std::vector<UpdateChunk> chunks_;
  std::vector<Squares> squares_;  // of each chunk
  std::vector<char> plain_;       // of each tensor, as what follows
  std::vector<float> clip_;
  std::vector<float> trust_;
};

// Always cut into the same number of parts, so that the sum does not depend on the number of threads.
class CpuSquareSum final : public SquareSumKernel {
 public:
  CpuSquareSum(const ContextPtr& context, float clip_value)
      : threads_(context->threads), limit_(limit_of(clip_value)) {}
  std::string implementation() const override { return "loop"; }

  void run(const Execution& on, const float* values, int64_t count, double* sum) override {
    constexpr int64_t kParts = 64;
    double parts[kParts] = {};
    const int64_t part = std::max<int64_t>(1024, (count + kParts - 1) / kParts);
    const bool as_they_are = !std::isfinite(limit_);
    RONDO_CHECK(as_they_are || on.state != nullptr);
    const GradientInput input{1.0f, as_they_are ? limit_ : limit_ / on.state->gradient_scale};
    parallel_ranges(count > kFloatGrain ? threads_ : 1, count, part, [&](int64_t begin, int64_t end) {
      const float* from = values + begin;
      parts[begin / part] =
          as_they_are ? dot_floats(from, from, end - begin) : cut_square_sum(input, from, end - begin);
    });
    *sum = 0.0;
    for (const double value : parts) *sum += value;
  }

 private:
  int threads_;
  float limit_;
};

}  // namespace

std::unique_ptr<UpdateKernel> make_update(ContextPtr context, const UpdateSpec& spec) {
  check_update(spec);
  return std::visit(
      [&](const auto& settings) {
        return with_rule(settings, [&]<class Rule>(const Rule& rule) -> std::unique_ptr<UpdateKernel> {
          return std::make_unique<CpuUpdate<Rule>>(context->threads, spec, rule);
        });
      },
      spec.rule);
}

std::unique_ptr<SquareSumKernel> make_square_sum(ContextPtr context, float clip_value) {
  require(!(clip_value < 0.0f), "clip_value must not be negative, got {}", clip_value);
  return std::make_unique<CpuSquareSum>(context, clip_value);
}

}  // namespace rondo::cpu
