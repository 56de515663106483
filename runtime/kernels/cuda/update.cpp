#include "runtime/kernels/update.h"

#include <limits>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/loops.h"
#include "runtime/kernels/loss_scale.h"
#include "runtime/kernels/step.h"

namespace rondo::cuda {
namespace {

class CudaUpdate final : public UpdateKernel {
 public:
  explicit CudaUpdate(const UpdateSpec& spec)
      : spec_(spec),
        slots_(slot_count(spec)),
        limit_(spec.clip_value > 0.0f ? spec.clip_value : std::numeric_limits<float>::infinity()) {}
  std::string implementation() const override { return "loop"; }

  void run(const Execution& on, const UpdateSpan& span) override {
    RONDO_CHECK(on.state != nullptr);
    RONDO_CHECK((slots_ < 1 || span.slots[0] != nullptr) && (slots_ < 2 || span.slots[1] != nullptr));
    const UpdateArrays arrays{
        .gradients = span.gradients,
        .weights = span.weights,
        .slots = {slots_ > 0 ? span.slots[0] : nullptr, slots_ > 1 ? span.slots[1] : nullptr},
        .count = span.count};
    const cudaStream_t stream = handle_of(on.stream);
    if (const auto* adam = std::get_if<AdamUpdate>(&spec_.rule)) {
      adam_update(stream, *adam, limit_, on.state, arrays);
    } else if (const auto* rmsprop = std::get_if<RmsPropUpdate>(&spec_.rule)) {
      rmsprop_update(stream, *rmsprop, limit_, on.state, arrays);
    } else {
      sgd_update(stream, std::get<SgdUpdate>(spec_.rule), limit_, on.state, arrays);
    }
  }

 private:
  UpdateSpec spec_;
  int slots_;
  float limit_;
};

class CudaSquareSum final : public SquareSumKernel {
 public:
  explicit CudaSquareSum(Device& device)
      : parts_(device.allocate(kSquareParts * static_cast<int64_t>(sizeof(double)))) {}
  std::string implementation() const override { return "loop"; }
  void run(const Execution& on, const float* values, int64_t count, double* sum) override {
    square_sum(handle_of(on.stream), values, count, parts_.as<double>(), sum);
  }

 private:
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

std::unique_ptr<UpdateKernel> make_update(const UpdateSpec& spec) {
  require(!(spec.clip_value < 0.0f), "clip_value must not be negative, got {}", spec.clip_value);
  return std::make_unique<CudaUpdate>(spec);
}

std::unique_ptr<SquareSumKernel> make_square_sum(const ContextPtr& context) {
  return std::make_unique<CudaSquareSum>(context->device);
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
