#include "runtime/kernels/broadcast.h"

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/broadcast_axes.h"
#include "runtime/kernels/cuda/broadcast_loops.h"
#include "runtime/kernels/cuda/layer_factories.h"

namespace rondo::cuda {
namespace {

class CudaBroadcast final : public BroadcastKernel {
 public:
  explicit CudaBroadcast(const BroadcastSpec& spec)
      : sizes_{spec.input.elements(), spec.output.elements()},
        axes_(spread::repetition(spec.input, spec.output)) {}
  std::string implementation() const override { return "loop"; }
  void spread(const Execution& on, const Tensor& in, const Tensor& out) override {
    spread_tensor(handle_of(on.stream), sizes_, {axes_.in_small, in.as<const float>(), out.as<float>()});
  }
  void sum(const Execution& on, const Tensor& out, const Tensor& in) override {
    sum_tensor(handle_of(on.stream), sizes_,
               {axes_.kept, axes_.repeated, out.as<const float>(), in.as<float>()});
  }

 private:
  SpreadSizes sizes_;
  spread::Repetition axes_;
};

class CudaPrelu final : public PreluKernel {
 public:
  explicit CudaPrelu(const PreluSpec& spec)
      : sizes_{spec.alpha.elements(), spec.input.elements()},
        axes_(spread::repetition(spread::for_rows(spec.alpha), spec.input)) {}
  std::string implementation() const override { return "loop"; }
  void forward(const Execution& on, const Tensor& in, const Tensor& alpha, const Tensor& out) override {
    prelu_forward(handle_of(on.stream), sizes_,
                  {axes_.in_small, in.as<const float>(), alpha.as<const float>(), out.as<float>()});
  }
  void backward(const Execution& on, const Tensor& in, const Tensor& alpha, const Tensor& grad_out,
                const Tensor& grad_in, const Tensor& grad_alpha) override {
    const auto *x = in.as<const float>(), *dy = grad_out.as<const float>();
    if (grad_alpha) {
      prelu_alpha(handle_of(on.stream), sizes_, {axes_.kept, axes_.repeated, x, dy, grad_alpha.as<float>()});
    }
    if (!grad_in) return;
    prelu_input(handle_of(on.stream), sizes_,
                {axes_.in_small, x, alpha.as<const float>(), dy, grad_in.as<float>()});
  }

 private:
  SpreadSizes sizes_;
  spread::Repetition axes_;
};

class CudaConstraint final : public ConstraintKernel {
 public:
  explicit CudaConstraint(const ConstraintSpec& spec) : spec_(spec), norm_(spread::norm_of(spec)) {}
  std::string implementation() const override { return "loop"; }
  void run(const Execution& on, const Tensor& weights) override {
    const int64_t count = spec_.weights.elements();
    if (spec_.constraint.kind == Constraint::Kind::kNonNeg) {
      constrain_sign(handle_of(on.stream), count, on.state, weights.as<float>());
      return;
    }
    spread::Norm norm = norm_;
    norm.w = weights.as<float>();
    constrain_norm(handle_of(on.stream), count, on.state, norm);
  }

 private:
  ConstraintSpec spec_;
  spread::Norm norm_;
};

}  // namespace

std::unique_ptr<BroadcastKernel> make_broadcast(const BroadcastSpec& spec) {
  check(spec);
  return std::make_unique<CudaBroadcast>(spec);
}

std::unique_ptr<PreluKernel> make_prelu(const PreluSpec& spec) {
  check(spec);
  return std::make_unique<CudaPrelu>(spec);
}

std::unique_ptr<ConstraintKernel> make_constraint(const ConstraintSpec& spec) {
  check(spec);
  return std::make_unique<CudaConstraint>(spec);
}

}  // namespace rondo::cuda
