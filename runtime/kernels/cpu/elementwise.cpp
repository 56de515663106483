#include "runtime/kernels/elementwise.h"

#include <fmt/format.h>

#include <cstring>

#include "runtime/base/activations.h"
#include "runtime/base/error.h"
#include "runtime/kernels/cpu/activation_loops.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/layout.h"
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/parallel.h"
#include "runtime/kernels/geometry.h"

namespace rondo::cpu {
namespace {

int64_t floats_in(const TensorDesc& desc) {
  return desc.bytes() / static_cast<int64_t>(sizeof(float));
}

void copy_floats(const float* x, float* y, int64_t count) {
  if (x != y) std::memcpy(y, x, static_cast<size_t>(count) * sizeof(float));
}

class CpuActivation final : public ActivationKernel {
 public:
  CpuActivation(const ContextPtr& context, const ActivationFunction& function, const TensorDesc& desc)
      : threads_(context->threads), function_(function), desc_(desc), count_(floats_in(desc)) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return desc_; }

  void forward(const Execution&, const Tensor& in, const Tensor& out) override {
    const auto* x = in.as<const float>();
    auto* y = out.as<float>();
    parallel_ranges(threads_, count_, kFloatGrain, [&](int64_t begin, int64_t end) {
      activation_forward(function_, x + begin, y + begin, end - begin);
    });
  }
  void backward(const Execution&, const Tensor& kept, const Tensor& grad_out,
                const Tensor& grad_in) override {
    const auto *k = kept.as<const float>(), *dy = grad_out.as<const float>();
    auto* dx = grad_in.as<float>();
    parallel_ranges(threads_, count_, kFloatGrain, [&](int64_t begin, int64_t end) {
      activation_backward(function_, dy + begin, k + begin, dx + begin, end - begin);
    });
  }

 private:
  int threads_;
  ActivationFunction function_;
  TensorDesc desc_;
  int64_t count_;
};

class CpuAdd final : public AddKernel {
 public:
  CpuAdd(const ContextPtr& context, const TensorDesc& desc)
      : threads_(context->threads), desc_(desc), count_(floats_in(desc)) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return desc_; }
  void run(const Execution&, const Tensor& a, const Tensor& b, const Tensor& out) override {
    const auto *x = a.as<const float>(), *y = b.as<const float>();
    auto* sum = out.as<float>();
    parallel_ranges(threads_, count_, kFloatGrain, [&](int64_t begin, int64_t end) {
      add_floats(x + begin, y + begin, sum + begin, end - begin);
    });
  }

 private:
  int threads_;
  TensorDesc desc_;
  int64_t count_;
};

class CpuConcat final : public ConcatKernel {
 public:
  explicit CpuConcat(const ConcatSpec& spec) : inputs_(spec.inputs), output_(output_desc(spec)) {
    for (const auto& input : inputs_) require_canonical(input, "concat");
    const Shape& whole = output_.shape;
    const int axis = spec.axis < 0 ? spec.axis + whole.rank() : spec.axis;
    for (int i = 0; i < axis; ++i) outer_ *= whole[i];
    for (const auto& input : inputs_) runs_.push_back(input.elements() / outer_);
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& input(int index) const override { return inputs_.at(static_cast<size_t>(index)); }
  const TensorDesc& output() const override { return output_; }

  void join(const Execution&, const std::vector<Tensor>& inputs, const Tensor& out) override {
    walk(inputs, out.as<float>(),
         [](float* part, float* whole, int64_t count) { copy_floats(part, whole, count); });
  }
  void split(const Execution&, const Tensor& out, const std::vector<Tensor>& inputs) override {
    walk(inputs, out.as<float>(),
         [](float* part, float* whole, int64_t count) { copy_floats(whole, part, count); });
  }

 private:
  template <class Move>
  void walk(const std::vector<Tensor>& parts, float* whole, const Move& move) const {
    RONDO_CHECK(parts.size() == runs_.size());
    for (int64_t o = 0; o < outer_; ++o) {
      for (size_t i = 0; i < parts.size(); ++i) {
        move(parts[i].as<float>() + o * runs_[i], whole, runs_[i]);
        whole += runs_[i];
      }
    }
  }

  std::vector<TensorDesc> inputs_;
  TensorDesc output_;
  int64_t outer_ = 1;
  std::vector<int64_t> runs_;  // contiguous elements of each input per outer index
};

}  // namespace

std::unique_ptr<ActivationKernel> make_activation(ContextPtr context, const ActivationFunction& function,
                                                  const TensorDesc& desc) {
  require_float(desc, "activation");
  TensorDesc lies = desc;
  // sigmoid(0) = 0.5 would fill the padding, which other kernels rely on to be zero.
  if (!keeps_zero(function) && !desc.layout.canonical() && padded(dnnl_layout(desc.layout).desc())) {
    lies.layout = {};
  }
  return std::make_unique<CpuActivation>(context, function, lies);
}

std::unique_ptr<AddKernel> make_add(ContextPtr context, const TensorDesc& desc) {
  require_float(desc, "add");
  return std::make_unique<CpuAdd>(context, desc);
}

std::unique_ptr<ConcatKernel> make_concat(ContextPtr, const ConcatSpec& spec) {
  return std::make_unique<CpuConcat>(spec);
}

}  // namespace rondo::cpu
