#include "runtime/base/error.h"
#include "runtime/kernels/arrange.h"
#include "runtime/kernels/cpu/binary_loops.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/layer_factories.h"
#include "runtime/kernels/cpu/parallel.h"

namespace rondo::cpu {
namespace {

int64_t floats_in(const TensorDesc& desc) {
  return desc.bytes() / static_cast<int64_t>(sizeof(float));
}

class CpuBinary final : public BinaryKernel {
 public:
  CpuBinary(const ContextPtr& context, const BinarySpec& spec)
      : threads_(context->threads), spec_(spec), count_(floats_in(spec.desc)) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return spec_.desc; }

  void forward(const Execution&, const Tensor& x, const Tensor& y, const Tensor& out) override {
    const auto *a = x.as<const float>(), *b = y.as<const float>();
    auto* to = out.as<float>();
    parallel_ranges(threads_, count_, kFloatGrain, [&](int64_t begin, int64_t end) {
      binary_forward(spec_.function, spec_.a, spec_.b, a + begin, b + begin, to + begin, end - begin);
    });
  }
  void backward(const Execution&, const Tensor& x, const Tensor& y, const Tensor& grad_out,
                const Tensor& grad_x, const Tensor& grad_y) override {
    const auto *a = x.as<const float>(), *b = y.as<const float>(), *g = grad_out.as<const float>();
    auto *da = grad_x.as<float>(), *db = grad_y.as<float>();
    const bool reads = spec_.function != Binary::kWeightedSum;
    parallel_ranges(threads_, count_, kFloatGrain, [&](int64_t begin, int64_t end) {
      binary_backward(spec_.function, spec_.a, spec_.b, reads ? a + begin : nullptr,
                      reads ? b + begin : nullptr, g + begin, da + begin, db + begin, end - begin);
    });
  }

 private:
  int threads_;
  BinarySpec spec_;
  int64_t count_;
};

// Padding of a layout is zero and adds nothing.
class CpuPenalty final : public PenaltyKernel {
 public:
  CpuPenalty(const ContextPtr& context, const PenaltySpec& spec)
      : threads_(context->threads), spec_(spec), count_(floats_in(spec.weights)) {}
  std::string implementation() const override { return "loop"; }

  void add_loss(const Execution&, const Tensor& weights, double* loss_sum) override {
    *loss_sum +=
        static_cast<double>(spec_.rows) * penalty(spec_.l1, spec_.l2, weights.as<const float>(), count_);
  }
  void add_gradient(const Execution& on, const Tensor& weights, const Tensor& grad) override {
    RONDO_CHECK(on.state != nullptr);
    const double share = static_cast<double>(spec_.rows) * static_cast<double>(on.state->inverse_batch);
    const auto l1 = static_cast<float>(share * spec_.l1), l2 = static_cast<float>(share * spec_.l2);
    const auto* w = weights.as<const float>();
    auto* g = grad.as<float>();
    parallel_ranges(threads_, count_, kFloatGrain, [&](int64_t begin, int64_t end) {
      add_penalty_gradient(l1, l2, w + begin, g + begin, end - begin);
    });
  }

 private:
  int threads_;
  PenaltySpec spec_;
  int64_t count_;
};

}  // namespace

std::unique_ptr<BinaryKernel> make_binary(ContextPtr context, const BinarySpec& spec) {
  require_float(spec.desc, "joining two tensors");
  return std::make_unique<CpuBinary>(context, spec);
}

std::unique_ptr<PenaltyKernel> make_penalty(ContextPtr context, const PenaltySpec& spec) {
  require_float(spec.weights, "a penalty");
  require(spec.l1 >= 0.0 && spec.l2 >= 0.0, "a penalty needs l1 and l2 of at least 0, got {} and {}", spec.l1,
          spec.l2);
  return std::make_unique<CpuPenalty>(context, spec);
}

}  // namespace rondo::cpu
