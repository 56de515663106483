#include "runtime/kernels/sequence.h"

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/gemm.h"
#include "runtime/kernels/cuda/layer_factories.h"
#include "runtime/kernels/cuda/sequence_loops.h"

namespace rondo::cuda {
namespace {

class CudaEmbedding final : public EmbeddingKernel {
 public:
  explicit CudaEmbedding(const EmbeddingSpec& spec)
      : spec_(spec), output_{output_shape(spec), DType::kF32, {}} {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& output() const override { return output_; }
  void forward(const Execution& on, const Tensor& indices, const Tensor& table, const Tensor& out) override {
    embedding_forward(handle_of(on.stream), arguments(indices), table.as<const float>(), out.as<float>());
  }
  void backward(const Execution& on, const Tensor& indices, const Tensor& grad_out,
                const Tensor& grad_table) override {
    embedding_backward(handle_of(on.stream), arguments(indices), grad_out.as<const float>(),
                       grad_table.as<float>());
  }

 private:
  Embedding arguments(const Tensor& indices) const {
    return {.count = spec_.indices.elements(),
            .entries = spec_.entries,
            .width = spec_.width,
            .indices = indices.as<const float>()};
  }
  EmbeddingSpec spec_;
  TensorDesc output_;
};

class CudaLayerNorm final : public LayerNormKernel {
 public:
  CudaLayerNorm(Device& device, const LayerNormSpec& spec)
      : spec_(spec),
        channels_(spec.input.shape[spec.input.shape.rank() - 1]),
        rows_(spec.input.elements() / channels_) {
    if (spec.mode != Mode::kTraining) return;
    statistics_ = device.allocate(2 * rows_ * static_cast<int64_t>(sizeof(float)));
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return spec_.input; }
  int64_t scratch_bytes() const override {
    if (spec_.mode != Mode::kTraining) return 0;
    return layer_norm_parts(rows_, channels_) * 2 * channels_ * static_cast<int64_t>(sizeof(double));
  }
  void forward(const Execution& on, const Tensor& in, const Tensor& gamma, const Tensor& beta,
               const Tensor& out) override {
    layer_norm_forward(handle_of(on.stream), arguments(gamma, beta), in.as<const float>(), out.as<float>());
  }
  void backward(const Execution& on, const Tensor& in, const Tensor& gamma, const Tensor& grad_out,
                const Tensor& grad_in, const Tensor& grad_gamma, const Tensor& grad_beta) override {
    RONDO_CHECK(spec_.mode == Mode::kTraining);
    layer_norm_backward(handle_of(on.stream), arguments(gamma, {}), in.as<const float>(),
                        grad_out.as<const float>(), static_cast<double*>(on.scratch), grad_in.as<float>(),
                        grad_gamma.as<float>(), grad_beta.as<float>());
  }

 private:
  LayerNorm arguments(const Tensor& gamma, const Tensor& beta) const {
    return {.rows = rows_,
            .channels = channels_,
            .epsilon = spec_.epsilon,
            .gamma = gamma.as<const float>(),
            .beta = beta.as<const float>(),
            .statistics = statistics_.as<float>()};
  }
  LayerNormSpec spec_;
  int64_t channels_, rows_;
  Buffer statistics_;
};

class CudaMatmul final : public MatmulKernel {
 public:
  CudaMatmul(ContextPtr context, Gemm gemm) : context_(std::move(context)), gemm_(std::move(gemm)) {}
  std::string implementation() const override { return "cuBLASLt"; }
  int64_t scratch_bytes() const override { return gemm_.scratch_bytes(); }
  void run(const Execution& on, const Tensor& a, const Tensor& b, const Tensor& out) override {
    gemm_.run(on, a.data, b.data, out.data);
  }

 private:
  ContextPtr context_;
  Gemm gemm_;
};

class CudaGate final : public GateKernel {
 public:
  explicit CudaGate(const GateSpec& spec) : spec_(spec) {}
  std::string implementation() const override { return "loop"; }
  void forward(const Execution& on, const GateState& state) override {
    gates_forward(handle_of(on.stream), spec_, state);
  }
  void backward(const Execution& on, const GateGradient& gradient) override {
    gates_backward(handle_of(on.stream), spec_, gradient);
  }
  void reset(const Execution& on, const GateState& state) override {
    gates_reset(handle_of(on.stream), spec_, state);
  }
  void backward_candidate(const Execution& on, const GateGradient& gradient) override {
    gates_backward_candidate(handle_of(on.stream), spec_, gradient);
  }

 private:
  GateSpec spec_;
};

}  // namespace

std::unique_ptr<EmbeddingKernel> make_embedding(const EmbeddingSpec& spec) {
  require_floats(spec.indices, "embedding");
  return std::make_unique<CudaEmbedding>(spec);
}

std::unique_ptr<LayerNormKernel> make_layer_norm(const ContextPtr& context, const LayerNormSpec& spec) {
  require_floats(spec.input, "layer normalization");
  check(spec);
  return std::make_unique<CudaLayerNorm>(context->device, spec);
}

std::unique_ptr<MatmulKernel> make_matmul(const ContextPtr& context, const MatmulSpec& spec) {
  check(spec);
  // Matrices behind the first of a batch stand wherever the ones before them end.
  const int64_t sizes = (spec.rows * spec.inner) | (spec.inner * spec.columns) | (spec.rows * spec.columns);
  auto gemm = Gemm::make(*context, {.rows = spec.rows,
                                    .columns = spec.columns,
                                    .inner = spec.inner,
                                    .transpose_a = spec.transpose_a,
                                    .transpose_b = spec.transpose_b,
                                    .tf32 = spec.tf32,
                                    .batch = spec.batch,
                                    .alpha = spec.alpha,
                                    .alignment = spec.batch == 1 || sizes % 4 == 0 ? 16u : 4u});
  if (!gemm) {
    raise<Unavailable>("cuBLASLt cannot make {} products of ({}, {}) and ({}, {})", spec.batch, spec.rows,
                       spec.inner, spec.inner, spec.columns);
  }
  return std::make_unique<CudaMatmul>(context, std::move(*gemm));
}

std::unique_ptr<GateKernel> make_gates(const GateSpec& spec) {
  check(spec);
  return std::make_unique<CudaGate>(spec);
}

}  // namespace rondo::cuda
