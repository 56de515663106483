#include "runtime/kernels/update.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/loops.h"
#include "runtime/kernels/cuda/update_loops.h"
#include "runtime/kernels/loss_scale.h"
#include "runtime/kernels/step.h"

namespace rondo::cuda {
namespace {

float limit_of(float clip_value) {
  return clip_value > 0.0f ? clip_value : std::numeric_limits<float>::infinity();
}

class CudaUpdate final : public UpdateKernel {
 public:
  CudaUpdate(Device& device, const UpdateSpec& spec) : spec_(spec), slots_(slot_count(spec)) {
    call_.limit = limit_of(spec.clip_value);
    call_.clip_norm = spec.clip_norm;
    if (works_by_tensor(spec)) make_tables(device);
    spec_.tensors = {};
  }
  std::string implementation() const override { return "loop"; }

  void run(const Execution& on, const UpdateSpan& span) override {
    RONDO_CHECK(on.state != nullptr);
    UpdateCall call = call_;
    call.span = span;
    for (int s = 0; s < 3; ++s) {
      RONDO_CHECK(s >= slots_ || span.slots[s] != nullptr);
      if (s >= slots_) call.span.slots[s] = nullptr;
    }
    call.state = on.state;
    update(handle_of(on.stream), spec_, call);
  }

 private:
  // One block of device memory, written once.
  void make_tables(Device& device) {
    const std::vector<UpdateChunk> chunks = update_chunks(spec_);
    const size_t tensors = spec_.tensors.size();
    std::vector<int64_t> first(tensors + 1);
    for (const UpdateChunk& chunk : chunks) ++first[static_cast<size_t>(chunk.tensor) + 1];
    for (size_t t = 0; t < tensors; ++t) first[t + 1] += first[t];
    std::vector<uint8_t> plain;
    for (const TensorRange& tensor : spec_.tensors) plain.push_back(tensor.plain ? 1 : 0);
    const std::vector<float> ones(tensors, 1.0f);

    const auto stream = device.make_stream();
    const auto upload = [&]<class T>(const std::vector<T>& values) {
      const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
      const Buffer& to = tables_.emplace_back(device.allocate(bytes));
      stream->copy(to.data(), values.data(), bytes);
      return to.as<T>();
    };
    TensorTables& tables = call_.tensors;
    tables.chunk_count = static_cast<int64_t>(chunks.size());
    tables.tensor_count = static_cast<int64_t>(tensors);
    tables.chunks = upload(chunks);
    tables.first_chunk = upload(first);
    tables.plain = upload(plain);
    tables.clip = upload(ones);
    tables.trust = upload(ones);
    tables.squares = upload(std::vector<double>(2 * chunks.size()));
    stream->synchronize();
  }

  UpdateSpec spec_;
  int slots_;
  UpdateCall call_;
  std::vector<Buffer> tables_;
};

class CudaSquareSum final : public SquareSumKernel {
 public:
  CudaSquareSum(Device& device, float clip_value)
      : limit_(limit_of(clip_value)),
        parts_(device.allocate(kSquareParts * static_cast<int64_t>(sizeof(double)))) {}
  std::string implementation() const override { return "loop"; }
  void run(const Execution& on, const float* values, int64_t count, double* sum) override {
    square_sum(handle_of(on.stream), on.state, limit_, values, count, parts_.as<double>(), sum);
  }

 private:
  float limit_;
  Buffer parts_;
};

class CudaClip final : public ClipKernel {
 public:
  explicit CudaClip(double limit) : limit_(limit) {}
  std::string implementation() const override { return "loop"; }
  void run(const Execution& on, const double* square_sums, int64_t count, StepState* state,
           double* norm_out) override {
    clip_norm(handle_of(on.stream), limit_, square_sums, count, state, norm_out);
  }

 private:
  double limit_;
};

class CudaTail final : public TailKernel {
 public:
  std::string implementation() const override { return "loop"; }
  void run(const Execution& on, const double* sums, int64_t count, float* tail) override {
    RONDO_CHECK(on.state != nullptr);
    fill_tail(handle_of(on.stream), sums, count, on.state, tail);
  }
};

class CudaLossScale final : public LossScaleKernel {
 public:
  explicit CudaLossScale(const LossScaling& scaling) : scaling_(scaling) {}
  std::string implementation() const override { return "loop"; }
  void begin(const Execution& on, const LossScale* scale, StepState* state) override {
    scale_step(handle_of(on.stream), scale, state);
  }
  void decide(const Execution& on, const double* square_sums, int64_t count, LossScale* scale,
              StepState* state) override {
    decide_step(handle_of(on.stream), scaling_, square_sums, count, scale, state);
  }

 private:
  LossScaling scaling_;
};

}  // namespace

std::unique_ptr<UpdateKernel> make_update(const ContextPtr& context, const UpdateSpec& spec) {
  check_update(spec);
  return std::make_unique<CudaUpdate>(context->device, spec);
}

std::unique_ptr<SquareSumKernel> make_square_sum(const ContextPtr& context, float clip_value) {
  require(!(clip_value < 0.0f), "clip_value must not be negative, got {}", clip_value);
  return std::make_unique<CudaSquareSum>(context->device, clip_value);
}

std::unique_ptr<ClipKernel> make_clip(double limit) {
  require(limit > 0.0, "the limit of a gradient norm must be positive, got {}", limit);
  return std::make_unique<CudaClip>(limit);
}

std::unique_ptr<TailKernel> make_tail() {
  return std::make_unique<CudaTail>();
}

std::unique_ptr<LossScaleKernel> make_loss_scale(const LossScaling& scaling) {
  check_loss_scaling(scaling);
  return std::make_unique<CudaLossScale>(scaling);
}

}  // namespace rondo::cuda
