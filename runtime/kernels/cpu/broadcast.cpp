#include "runtime/kernels/broadcast.h"

#include <algorithm>

#include "runtime/kernels/broadcast_axes.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/layer_factories.h"
#include "runtime/kernels/cpu/parallel.h"

namespace rondo::cpu {
namespace {

// f(i) for 0 <= i < count, where each takes about `floats` steps.
template <class F>
void each(int threads, int64_t count, int64_t floats, const F& f) {
  parallel_ranges(threads, count, std::max<int64_t>(1, kFloatGrain / (8 * floats)),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) f(i);
                  });
}

class CpuBroadcast final : public BroadcastKernel {
 public:
  CpuBroadcast(const ContextPtr& context, const BroadcastSpec& spec)
      : threads_(context->threads), spec_(spec), axes_(spread::repetition(spec.input, spec.output)) {}
  std::string implementation() const override { return "loop"; }
  void spread(const Execution&, const Tensor& in, const Tensor& out) override {
    each(threads_, spec_.output.elements(), 1,
         spread::Spread{axes_.in_small, in.as<const float>(), out.as<float>()});
  }
  void sum(const Execution&, const Tensor& out, const Tensor& in) override {
    each(threads_, spec_.input.elements(), axes_.repeated.count,
         spread::Sum{axes_.kept, axes_.repeated, out.as<const float>(), in.as<float>()});
  }

 private:
  int threads_;
  BroadcastSpec spec_;
  spread::Repetition axes_;
};

class CpuPrelu final : public PreluKernel {
 public:
  CpuPrelu(const ContextPtr& context, const PreluSpec& spec)
      : threads_(context->threads),
        spec_(spec),
        axes_(spread::repetition(spread::for_rows(spec.alpha), spec.input)) {}
  std::string implementation() const override { return "loop"; }
  void forward(const Execution&, const Tensor& in, const Tensor& alpha, const Tensor& out) override {
    each(
        threads_, spec_.input.elements(), 1,
        spread::PreluForward{axes_.in_small, in.as<const float>(), alpha.as<const float>(), out.as<float>()});
  }
  void backward(const Execution&, const Tensor& in, const Tensor& alpha, const Tensor& grad_out,
                const Tensor& grad_in, const Tensor& grad_alpha) override {
    const auto *x = in.as<const float>(), *dy = grad_out.as<const float>();
    if (grad_alpha) {
      each(threads_, spec_.alpha.elements(), axes_.repeated.count,
           spread::PreluAlpha{axes_.kept, axes_.repeated, x, dy, grad_alpha.as<float>()});
    }
    if (!grad_in) return;
    each(threads_, spec_.input.elements(), 1,
         spread::PreluInput{axes_.in_small, x, alpha.as<const float>(), dy, grad_in.as<float>()});
  }

 private:
  int threads_;
  PreluSpec spec_;
  spread::Repetition axes_;
};

class CpuConstraint final : public ConstraintKernel {
 public:
  CpuConstraint(const ContextPtr& context, const ConstraintSpec& spec)
      : threads_(context->threads), spec_(spec), norm_(spread::norm_of(spec)) {}
  std::string implementation() const override { return "loop"; }
  void run(const Execution& on, const Tensor& weights) override {
    const int32_t* skip = on.state != nullptr ? &on.state->skip : nullptr;
    if (spec_.constraint.kind == Constraint::Kind::kNonNeg) {
      each(threads_, spec_.weights.elements(), 1, spread::NonNegative{skip, weights.as<float>()});
      return;
    }
    spread::Norm norm = norm_;
    norm.skip = skip;
    norm.w = weights.as<float>();
    each(threads_, norm.kept.count, norm.group.count, norm);
  }

 private:
  int threads_;
  ConstraintSpec spec_;
  spread::Norm norm_;
};

}  // namespace

std::unique_ptr<BroadcastKernel> make_broadcast(ContextPtr context, const BroadcastSpec& spec) {
  check(spec);
  return std::make_unique<CpuBroadcast>(context, spec);
}

std::unique_ptr<PreluKernel> make_prelu(ContextPtr context, const PreluSpec& spec) {
  check(spec);
  return std::make_unique<CpuPrelu>(context, spec);
}

std::unique_ptr<ConstraintKernel> make_constraint(ContextPtr context, const ConstraintSpec& spec) {
  check(spec);
  return std::make_unique<CpuConstraint>(context, spec);
}

}  // namespace rondo::cpu
