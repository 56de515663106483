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
  float* slots[3] = {nullptr, nullptr, nullptr};
  std::unique_ptr<UpdateKernel> update;
};

// Of Nadam: the product of the momenta of the updates so far, taken step by step.
class MomentumProduct {
 public:
  double at(const OptimizerConfig& config, const UpdateSpec& spec, int64_t update) {
    if (!std::holds_alternative<Nadam>(config)) return 1.0;
    const auto& rule = std::get<NadamUpdate>(spec.rule);
    if (update < done_) *this = {};
    while (done_ < update) product_ *= update::nadam_momentum(rule, ++done_);
    return product_;
  }

 private:
  int64_t done_ = 0;
  double product_ = 1.0;
};

}  // namespace

struct Optimizer::State {
  Device& device;
  OptimizerConfig config;
  Schedule schedule;  // the configuration's, with its length filled in
  KernelBackend& backend;
  UpdateSpec spec;
  std::unique_ptr<SquareSumKernel> square_sum;
  std::unique_ptr<ClipKernel> clip;  // none without a limit
  Buffer squares = {};               // on the device: the norm, then each span's sum of squares
  int slots = 0;
  std::vector<BoundSpan> spans = {};
  MomentumProduct momentum = {};

  void allocate_slots(BoundSpan& span) const;

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
                         .backend = backend,
                         .spec = spec,
                         .square_sum = backend.square_sum(spec.clip_value),
                         .clip = limit > 0.0 ? backend.clip(limit) : nullptr,
                         .slots = slot_count(spec)});
}

Optimizer::~Optimizer() = default;

void Optimizer::State::allocate_slots(BoundSpan& span) const {
  if (slots == 0 || span.count == 0) return;
  const int64_t stride = (span.count + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  span.memory =
      allocate_for(device, slots * stride * static_cast<int64_t>(sizeof(float)), "the optimizer's state");
  for (int slot = 0; slot < slots; ++slot) span.slots[slot] = span.memory.as<float>() + slot * stride;
  const float initial = initial_slot_value(config);
  if (initial == 0.0f) return;
  const std::vector<float> values(static_cast<size_t>(slots * stride), initial);
  const auto stream = device.make_stream();
  stream->copy(span.memory.data(), values.data(), span.memory.bytes());
  stream->synchronize();
}

void Optimizer::bind(std::span<const SpanLayout> layouts) {
  std::vector<BoundSpan> spans;
  for (const SpanLayout& layout : layouts) {
    BoundSpan& span = spans.emplace_back();
    span.count = layout.count;
    state_->allocate_slots(span);
    if (span.count == 0) continue;
    UpdateSpec spec = state_->spec;
    for (const SpanTensor& tensor : layout.tensors) {
      require(tensor.offset + tensor.count <= layout.count,
              "parameter {} lies behind the end of its span of {} elements", tensor.name, layout.count);
      spec.tensors.push_back({tensor.offset, tensor.count, excludes(state_->config, tensor.name)});
    }
    if (spec.tensors.empty()) {  // a span of nothing but a tail
      spec.tensors.push_back({0, layout.count, false});
    }
    span.update = state_->backend.update(spec);
  }
  state_->squares = state_->device.allocate(static_cast<int64_t>((1 + spans.size()) * sizeof(double)));
  state_->spans = std::move(spans);
}

void Optimizer::bind(std::span<const int64_t> counts) {
  std::vector<SpanLayout> layouts;
  for (const int64_t count : counts) layouts.push_back({count, {{.name = {}, .offset = 0, .count = count}}});
  bind(layouts);
}

void Optimizer::begin_step(StepState& state) {
  const double rate = learning_rate_at(state_->schedule, learning_rate(), state.step) /
                      (1.0 + decay_of(state_->config) * static_cast<double>(state.step));
  state.learning_rate = static_cast<float>(rate);
  state.update = state.step + 1;
  state.momentum_product = state_->momentum.at(state_->config, state_->spec, state.update);
  state.momentum_updates = state.update;
  state.gradient_scale = 1.0f;
  state.clip_scale = 1.0f;
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
  bound.update->run(on, {.weights = weights.data(),
                         .gradients = gradients.data(),
                         .slots = {bound.slots[0], bound.slots[1], bound.slots[2]},
                         .count = bound.count});
}

std::span<float> Optimizer::slot(int span, int slot) {
  require(span >= 0 && span < static_cast<int>(state_->spans.size()) && slot >= 0 && slot < state_->slots,
          "slot {} of span {} does not exist: {} spans are bound, with {} slots each", slot, span,
          state_->spans.size(), state_->slots);
  const BoundSpan& bound = state_->spans[static_cast<size_t>(span)];
  return {bound.slots[slot], static_cast<size_t>(bound.count)};
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
