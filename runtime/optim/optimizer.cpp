#include "runtime/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/kernels/backend.h"
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
  Buffer sum;  // one float64 on the device
  int slots = 0;
  std::vector<BoundSpan> spans = {};
};

Optimizer::Optimizer(const OptimizerConfig& config, KernelBackend& backend) {
  check_config(config);
  const UpdateSpec spec = update_spec(config);
  state_.reset(new State{.device = backend.device(),
                         .config = config,
                         .schedule = schedule_of(config),
                         .update = backend.update(spec),
                         .square_sum = backend.square_sum(),
                         .sum = backend.device().allocate(sizeof(double)),
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
    span.memory = state_->device.allocate(state_->slots * stride * static_cast<int64_t>(sizeof(float)));
    for (int slot = 0; slot < state_->slots; ++slot)
      span.slots[slot] = span.memory.as<float>() + slot * stride;
  }
  state_->spans = std::move(spans);
}

void Optimizer::begin_step(StepState& state) const {
  state.learning_rate = static_cast<float>(learning_rate_at(state_->schedule, learning_rate(), state.step));
  state.update = state.step + 1;
  state.gradient_scale = 1.0f;
}

bool Optimizer::needs_norm() const {
  return clipping_of(state_->config).global_clipnorm > 0.0;
}

float Optimizer::clip_factor(double square_sum) const {
  const double limit = clipping_of(state_->config).global_clipnorm;
  if (limit == 0.0) return 1.0f;
  return static_cast<float>(limit / std::max(std::sqrt(square_sum), limit));  // a NaN stays one
}

double Optimizer::square_sum(const Execution& on, std::span<const float> gradients) {
  state_->square_sum->run(on, gradients.data(), static_cast<int64_t>(gradients.size()),
                          state_->sum.as<double>());
  double sum = 0.0;
  on.stream.copy(&sum, state_->sum.data(), sizeof sum);
  on.stream.synchronize();
  return sum;
}

void Optimizer::update(const Execution& on, int span, std::span<float> weights,
                       std::span<const float> gradients) {
  require(span >= 0 && span < static_cast<int>(state_->spans.size()), "span {} is not bound; {} spans are",
          span, state_->spans.size());
  const BoundSpan& bound = state_->spans[static_cast<size_t>(span)];
  require(static_cast<int64_t>(weights.size()) == bound.count && gradients.size() == weights.size(),
          "span {} is bound to {} elements, but {} weights and {} gradients were given", span, bound.count,
          weights.size(), gradients.size());
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
