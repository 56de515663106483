#include "runtime/kernels/sequence.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/layer_factories.h"
#include "runtime/kernels/cpu/operation.h"
#include "runtime/kernels/cpu/parallel.h"
#include "runtime/kernels/cpu/sequence_loops.h"

namespace rondo::cpu {
namespace {

class CpuEmbedding final : public EmbeddingKernel {
 public:
  explicit CpuEmbedding(const EmbeddingSpec& spec)
      : spec_(spec), output_{output_shape(spec), DType::kF32, {}} {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& output() const override { return output_; }

  void forward(const Execution&, const Tensor& indices, const Tensor& table, const Tensor& out) override {
    const auto* number = indices.as<const float>();
    const auto* rows = table.as<const float>();
    auto* to = out.as<float>();
    for (int64_t i = 0; i < spec_.indices.elements(); ++i) {
      const float at = number[i];
      if (!(at >= 0.0f && at < static_cast<float>(spec_.entries)) || at != std::floor(at)) {
        raise<InvalidArgument>(
            "embedding: element {} of the input is {}; expected a whole number from 0 to {}", i, at,
            spec_.entries - 1);
      }
      to = std::copy_n(rows + static_cast<int64_t>(at) * spec_.width, spec_.width, to);
    }
  }
  void backward(const Execution&, const Tensor& indices, const Tensor& grad_out,
                const Tensor& grad_table) override {
    const auto *number = indices.as<const float>(), *dy = grad_out.as<const float>();
    auto* grad = grad_table.as<float>();
    std::fill_n(grad, spec_.entries * spec_.width, 0.0f);
    for (int64_t i = 0; i < spec_.indices.elements(); ++i) {
      accumulate(dy + i * spec_.width, grad + static_cast<int64_t>(number[i]) * spec_.width, spec_.width);
    }
  }

 private:
  EmbeddingSpec spec_;
  TensorDesc output_;
};

// The rows are cut into parts whose number does not depend on the threads: sums come out the same.
class CpuLayerNorm final : public LayerNormKernel {
 public:
  CpuLayerNorm(const ContextPtr& context, const LayerNormSpec& spec)
      : threads_(context->threads),
        spec_(spec),
        channels_(spec.input.shape[spec.input.shape.rank() - 1]),
        rows_(spec.input.elements() / channels_),
        part_(std::max<int64_t>((rows_ + kMostParts - 1) / kMostParts, 1)),
        parts_((rows_ + part_ - 1) / part_),
        statistics_(static_cast<size_t>(2 * rows_)) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return spec_.input; }
  int64_t scratch_bytes() const override {
    if (spec_.mode != Mode::kTraining) return 0;
    return parts_ * 2 * channels_ * static_cast<int64_t>(sizeof(double));
  }

  void forward(const Execution&, const Tensor& in, const Tensor& gamma, const Tensor& beta,
               const Tensor& out) override {
    const auto* x = in.as<const float>();
    auto* y = out.as<float>();
    parallel_ranges(threads_, rows_, part_, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        layer_norm_row(x + r * channels_, spec_.epsilon, gamma.as<const float>(), beta.as<const float>(),
                       y + r * channels_, channels_, mean(r), scale(r));
      }
    });
  }
  void backward(const Execution& on, const Tensor& in, const Tensor& gamma, const Tensor& grad_out,
                const Tensor& grad_in, const Tensor& grad_gamma, const Tensor& grad_beta) override {
    RONDO_CHECK(spec_.mode == Mode::kTraining);
    const auto *x = in.as<const float>(), *dy = grad_out.as<const float>();
    auto* dx = grad_in.as<float>();
    auto* sums = static_cast<double*>(on.scratch);
    std::fill_n(sums, parts_ * 2 * channels_, 0.0);
    parallel_ranges(threads_, rows_, part_, [&](int64_t begin, int64_t end) {
      double* own = sums + begin / part_ * 2 * channels_;
      for (int64_t r = begin; r < end; ++r) {
        layer_norm_gradient_row(x + r * channels_, dy + r * channels_, *mean(r), *scale(r),
                                gamma.as<const float>(), dx + r * channels_,
                                grad_gamma.data != nullptr ? own : nullptr,
                                grad_beta.data != nullptr ? own + channels_ : nullptr, channels_);
      }
    });
    join(sums, grad_gamma);
    join(sums + channels_, grad_beta);
  }

 private:
  static constexpr int64_t kMostParts = 64;
  float* mean(int64_t row) { return &statistics_[static_cast<size_t>(2 * row)]; }
  float* scale(int64_t row) { return &statistics_[static_cast<size_t>(2 * row + 1)]; }
  void join(const double* sums, const Tensor& grad) const {
    if (grad.data == nullptr) return;
    for (int64_t c = 0; c < channels_; ++c) {
      double sum = 0.0;
      for (int64_t part = 0; part < parts_; ++part) sum += sums[part * 2 * channels_ + c];
      grad.as<float>()[c] = static_cast<float>(sum);
    }
  }

  int threads_;
  LayerNormSpec spec_;
  int64_t channels_, rows_, part_, parts_;
  std::vector<float> statistics_;
};

using dnnl::memory;

MemoryDesc matrices(int64_t batch, int64_t rows, int64_t columns, bool transposed) {
  return strided_desc({batch, rows, columns},
                      transposed ? std::initializer_list<int>{0, 2, 1} : std::initializer_list<int>{0, 1, 2});
}

class CpuMatmul final : public MatmulKernel {
 public:
  CpuMatmul(const ContextPtr& context, const MatmulSpec& spec) {
    const MemoryDesc a = matrices(spec.batch, spec.rows, spec.inner, spec.transpose_a);
    const MemoryDesc b = matrices(spec.batch, spec.inner, spec.columns, spec.transpose_b);
    const MemoryDesc out = matrices(spec.batch, spec.rows, spec.columns, false);
    auto attributes = base_attributes();
    if (spec.alpha != 1.0f) attributes.set_output_scales(0, {spec.alpha});
    const dnnl::matmul::primitive_desc desc({a, b, out}, attributes, context->engine);
    product_ = std::make_unique<Operation>(
        context, desc,
        std::vector<Operation::Operand>{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, out}});
  }
  int64_t scratch_bytes() const override { return product_->scratch_bytes(); }
  std::string implementation() const override { return "oneDNN " + product_->implementation(); }
  void run(const Execution& on, const Tensor& a, const Tensor& b, const Tensor& out) override {
    product_->execute(on, {a.data, b.data, out.data});
  }

 private:
  std::unique_ptr<Operation> product_;
};

template <class T>
void move(T*& pointer, int64_t by) {
  if (pointer != nullptr) pointer += by;
}

class CpuGate final : public GateKernel {
 public:
  CpuGate(const ContextPtr& context, const GateSpec& spec) : threads_(context->threads), spec_(spec) {}
  std::string implementation() const override { return "loop"; }

  void forward(const Execution&, const GateState& state) override {
    each_row([&](int64_t row) {
      GateState s = state;
      const int64_t units = spec_.units, gates = gate_count(spec_.kind) * units;
      move(s.input, row * gates);
      move(s.recurrent, row * gates);
      move(s.last_output, row * units);
      move(s.last_cell, row * units);
      move(s.kept, row * 4 * units);
      move(s.cell, row * units);
      move(s.output, row * units);
      if (left_out(state.mask, row * state.mask_stride)) {
        std::copy_n(s.last_output, units, s.output);
        if (s.cell != nullptr) std::copy_n(s.last_cell, units, s.cell);
        return;
      }
      switch (spec_.kind) {
        case Recurrence::kLstm:
          return lstm_forward_row(s, units, spec_.hard);
        case Recurrence::kGru:
          return gru_forward_row(s, units, spec_.hard);
        case Recurrence::kGruResetBefore:
          return gru_candidate_row(s, units);
      }
    });
  }
  void reset(const Execution&, const GateState& state) override {
    each_row([&](int64_t row) {
      GateState s = state;
      const int64_t units = spec_.units;
      move(s.input, row * 3 * units);
      move(s.recurrent, row * 3 * units);
      for (const float** each : {&s.last_output, &s.last_dropped}) move(*each, row * units);
      move(s.kept, row * 4 * units);
      move(s.reset, row * units);
      if (left_out(state.mask, row * state.mask_stride)) {
        std::fill_n(s.reset, units, 0.0f);
      } else {
        gru_reset_row(s, units, spec_.hard);
      }
    });
  }
  void backward(const Execution&, const GateGradient& gradient) override {
    each_row([&](int64_t row) {
      GateGradient g = gradient;
      const int64_t units = spec_.units, gates = gate_count(spec_.kind) * units;
      move(g.kept, row * 4 * units);
      for (const float** each : {&g.last_output, &g.last_cell, &g.cell, &g.grad_output, &g.grad_next}) {
        move(*each, row * units);
      }
      move(g.grad_cell, row * units);
      move(g.grad_last, row * units);
      move(g.grad_input, row * gates);
      move(g.grad_recurrent, row * gates);
      move(g.last_dropped, row * units);
      move(g.grad_reset, row * units);
      if (left_out(gradient.mask, row * gradient.mask_stride)) return pass_back(g, units, gates);
      switch (spec_.kind) {
        case Recurrence::kLstm:
          if (g.grad_last != nullptr) std::fill_n(g.grad_last, units, 0.0f);
          return lstm_backward_row(g, units, spec_.hard);
        case Recurrence::kGru:
          return gru_backward_row(g, units, spec_.hard);
        case Recurrence::kGruResetBefore:
          return gru_reset_backward_row(g, units, spec_.hard);
      }
    });
  }
  void backward_candidate(const Execution&, const GateGradient& gradient) override {
    each_row([&](int64_t row) {
      GateGradient g = gradient;
      const int64_t units = spec_.units;
      move(g.kept, row * 4 * units);
      for (const float** each : {&g.grad_output, &g.grad_next}) move(*each, row * units);
      move(g.grad_candidate, row * 3 * units);
      if (left_out(gradient.mask, row * gradient.mask_stride)) {
        std::fill_n(g.grad_candidate, 3 * units, 0.0f);
      } else {
        gru_candidate_backward_row(g, units);
      }
    });
  }

 private:
  static bool left_out(const float* mask, int64_t at) { return mask != nullptr && mask[at] == 0.0f; }
  // The gradient of a row that only passed its state on.
  static void pass_back(const GateGradient& g, int64_t units, int64_t gates) {
    std::fill_n(g.grad_input, gates, 0.0f);
    if (g.grad_recurrent != nullptr) std::fill_n(g.grad_recurrent, gates, 0.0f);
    if (g.grad_reset != nullptr) std::fill_n(g.grad_reset, units, 0.0f);
    for (int64_t k = 0; k < units; ++k) {
      g.grad_last[k] = (g.grad_output != nullptr ? g.grad_output[k] : 0.0f) + g.grad_next[k];
    }
  }
  template <class Row>
  void each_row(const Row& row) const {
    const int64_t grain = std::max<int64_t>(1, kFloatGrain / 8 / spec_.units);
    parallel_ranges(threads_, spec_.rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(r);
    });
  }
  int threads_;
  GateSpec spec_;
};

}  // namespace

std::unique_ptr<EmbeddingKernel> make_embedding(ContextPtr, const EmbeddingSpec& spec) {
  require_canonical(spec.indices, "embedding");
  return std::make_unique<CpuEmbedding>(spec);
}

std::unique_ptr<LayerNormKernel> make_layer_norm(ContextPtr context, const LayerNormSpec& spec) {
  require_canonical(spec.input, "layer normalization");
  check(spec);
  return std::make_unique<CpuLayerNorm>(context, spec);
}

std::unique_ptr<MatmulKernel> make_matmul(ContextPtr context, const MatmulSpec& spec) {
  check(spec);
  context->use_threads();
  return std::make_unique<CpuMatmul>(context, spec);
}

std::unique_ptr<GateKernel> make_gates(ContextPtr context, const GateSpec& spec) {
  check(spec);
  return std::make_unique<CpuGate>(context, spec);
}

}  // namespace rondo::cpu
