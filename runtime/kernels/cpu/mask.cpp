#include "runtime/kernels/mask.h"

#include <algorithm>

#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/layer_factories.h"
#include "runtime/kernels/cpu/parallel.h"
#include "runtime/kernels/mask_rules.h"

namespace rondo::cpu {
namespace {

// f(i) for 0 <= i < count, where each takes about `floats` steps.
template <class F>
void each(int threads, int64_t count, int64_t floats, const F& f) {
  parallel_ranges(threads, count, std::max<int64_t>(1, kFloatGrain / floats),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) f(i);
                  });
}

class CpuMask final : public MaskKernel {
 public:
  CpuMask(const ContextPtr& context, const MaskSpec& spec) : threads_(context->threads), spec_(spec) {}
  std::string implementation() const override { return "loop"; }
  void find(const Execution&, const Tensor& in, float value, const Tensor& mask) override {
    each(threads_, spec_.rows * spec_.positions, spec_.features,
         mask::Find{spec_.features, value, in.as<const float>(), mask.as<float>()});
  }
  void scale(const Execution&, const Tensor& in, const Tensor& mask, const Tensor& out) override {
    each(threads_, spec_.rows * spec_.positions * spec_.features, 1,
         mask::Scale{spec_.features, in.as<const float>(), mask.as<const float>(), out.as<float>()});
  }
  void shares(const Execution&, const Tensor& mask, const Tensor& shares) override {
    each(threads_, spec_.rows, spec_.positions,
         mask::Shares{spec_.positions, mask.as<const float>(), shares.as<float>()});
  }

 private:
  int threads_;
  MaskSpec spec_;
};

class CpuScoreMask final : public ScoreMaskKernel {
 public:
  CpuScoreMask(const ContextPtr& context, const ScoreMaskSpec& spec)
      : threads_(context->threads), spec_(spec) {}
  std::string implementation() const override { return "loop"; }
  void hide(const Execution&, const Tensor& scores, const Tensor& query_mask, const Tensor& key_mask,
            const Tensor& out) override {
    each(threads_, spec_.rows * spec_.heads * spec_.queries * spec_.keys, 1,
         mask::Hide{spec_.heads, spec_.queries, spec_.keys, scores.as<const float>(),
                    query_mask.as<const float>(), key_mask.as<const float>(), out.as<float>()});
  }

 private:
  int threads_;
  ScoreMaskSpec spec_;
};

}  // namespace

std::unique_ptr<MaskKernel> make_mask(ContextPtr context, const MaskSpec& spec) {
  check(spec);
  return std::make_unique<CpuMask>(context, spec);
}

std::unique_ptr<ScoreMaskKernel> make_score_mask(ContextPtr context, const ScoreMaskSpec& spec) {
  check(spec);
  return std::make_unique<CpuScoreMask>(context, spec);
}

}  // namespace rondo::cpu
