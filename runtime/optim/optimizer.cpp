#include "runtime/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/device/allocate_for.h"
#include "runtime/device/device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/step.h"
#include "runtime/kernels/update.h"
#include "runtime/optim/optimizer_config.h"

namespace rondo {
namespace {

constexpr int64_t kSlotAlignment = 16;  // floats: a cache line

struct BoundSpan {
  int64_t count = 0;
  Buffer memory;  // all slots
  float* slots[2] = {nullptr, nullptr};
};

}  // namespace

struct Optimizer::State {
  Device& device;
  OptimizerConfig config;
  Schedule schedule;  // the configuration's, with its length filled in
  std::unique_ptr<UpdateKernel> update;
  std::unique_ptr<SquareSumKernel> square_sum;
  std::unique_ptr<ClipKernel> clip;  // none without a limit
  Buffer squares = {};               // on the device: the norm, then each span's sum of squares
  int slots = 0;
  std::vector<BoundSpan> spans = {};

  const BoundSpan& bound(int span, size_t count) const {
    require(span >= 0 && span < static_cast<int>(spans.size()), "span {} is not bound; {} spans are", span,
            spans.size());
    const BoundSpan& found = spans[static_cast<size_t>(span)];
    require(found.count == static_cast<int64_t>(count),
            "span {} is bound to {} elements, but {} gradients were given", span, found.count, count);
    return found;
  }
};

Optimizer::Optimizer(const OptimizerConfig& config, KernelBackend& backend) {
  check_config(config);
  const UpdateSpec spec = update_spec(config);
  const double limit = clipping_of(config).global_clipnorm;
  state_.reset(new State{.device = backend.device(),
                         .config = config,
                         .schedule = schedule_of(config),
                         .update = backend.update(spec),
                         .square_sum = backend.square_sum(),
                         .clip = limit > 0.0 ? backend.clip(limit) : nullptr,
                         .slots = slot_count(spec)});
}

Optimizer::~Optimizer() = default;

void Optimizer::bind(std::span<const int64_t> counts) {
  std::vector<BoundSpan> spans;
  for (const int64_t count : counts) {
    BoundSpan& span = spans.emplace_back();
    span.count = count;
    if (state_->slots == 0 || count == 0) continue;
    const int64_t stride = (count + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
    span.memory = allocate_for(state_->device, state_->slots * stride * static_cast<int64_t>(sizeof(float)),
                               "the optimizer's state");
    for (int slot = 0; slot < state_->slots; ++slot)
      span.slots[slot] = span.memory.as<float>() + slot * stride;
  }
  state_->squares = state_->device.allocate(static_cast<int64_t>((1 + spans.size()) * sizeof(double)));
  state_->spans = std::move(spans);
}

void Optimizer::begin_step(StepState& state) const {
  state.learning_rate = static_cast<float>(learning_rate_at(state_->schedule, learning_rate(), state.step));
  state.update = state.step + 1;
  state.gradient_scale = 1.0f;
}

bool Optimizer::needs_norm() const {
  return state_->clip != nullptr;
}

void Optimizer::add_squares(const Execution& on, int span, std::span<const float> gradients) {
  state_->bound(span, gradients.size());
  state_->square_sum->run(on, gradients.data(), static_cast<int64_t>(gradients.size()),
                          state_->squares.as<double>() + 1 + span);
}

std::span<const double> Optimizer::squares() const {
  return {state_->squares.as<double>() + 1, state_->spans.size()};
}

void Optimizer::clip(const Execution& on, StepState* state) {
  RONDO_CHECK(needs_norm());
  state_->clip->run(on, state_->squares.as<double>() + 1, static_cast<int64_t>(state_->spans.size()), state,
                    state_->squares.as<double>());
}

const double* Optimizer::norm() const {
  return state_->squares.as<double>();
}

void Optimizer::update(const Execution& on, int span, std::span<float> weights,
                       std::span<const float> gradients) {
  const BoundSpan& bound = state_->bound(span, gradients.size());
  require(weights.size() == gradients.size(), "span {} has {} gradients, but {} weights were given", span,
          gradients.size(), weights.size());
  if (bound.count == 0) return;
  state_->update->run(on, {.weights = weights.data(),
                           .gradients = gradients.data(),
                           .slots = {bound.slots[0], bound.slots[1]},
                           .count = bound.count});
}

void Optimizer::set_learning_rate(double rate) {
  check_learning_rate(rate);
  learning_rate_of(state_->config) = rate;
}

double Optimizer::learning_rate() const {
  return learning_rate_of(state_->config);
}

void Optimizer::set_total_steps(int64_t steps) {
  auto* cosine = std::get_if<CosineSchedule>(&state_->schedule.rule);
  if (cosine == nullptr || std::get<CosineSchedule>(schedule_of(state_->config).rule).total_steps > 0) return;
  cosine->total_steps = std::max<int64_t>(steps - state_->schedule.warmup_steps, 1);
}

const OptimizerConfig& Optimizer::config() const {
  return state_->config;
}

}  // namespace rondo
