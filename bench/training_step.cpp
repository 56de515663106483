#include "bench/training_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "models/graph/graph_compiler.h"
#include "models/graph/graph_network.h"
#include "models/losses/losses.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/self_communicator.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/gradsync/grad_sync.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/kernels/loss.h"
#include "runtime/optim/optimizer.h"

namespace rondo::bench {
namespace {

const Shape kImage{28, 28, 1};
constexpr int64_t kClasses = 10;

}  // namespace

TrainingStep::TrainingStep(const StepOptions& options)
    : options_(options),
      device_(make_cpu_device(options.threads)),
      backend_(make_cpu_backend(*device_)),
      comm_(make_self_communicator(*device_)),
      model_(zoo::make(options.model, kImage, kClasses, options.seed)) {
  require(options.batch > 0, "a step needs a batch of at least 1 image, got {}", options.batch);
  require(options.clock == ClockKind::kWall || options.threads == 1,
          "CPU time is a measure for one thread only, got {} threads", options.threads);
  const OptimizerConfig config = optimizer_by_name(options.optimizer);
  network_ = std::make_unique<GraphNetwork>(
      model_.graph(), *backend_,
      NetworkOptions{
          .nominal_rows = options.batch,
          .objective = make_objective("sparse_categorical_crossentropy", {}, model_.output_shape())});
  network_->prepare(options.batch, Mode::kTraining);
  sums_.resize(network_->metric_names().size() + 1);
  sync_ = std::make_unique<GradSync>(*comm_, *device_, network_->parameters(),
                                     static_cast<int64_t>(sums_.size()) + 1);
  optimizer_ = std::make_unique<Optimizer>(config, *backend_);
  std::vector<int64_t> counts;
  for (const Bucket& bucket : sync_->plan()) counts.push_back(bucket.count);
  optimizer_->bind(counts);
  make_batch();
  mark_loss();
}

TrainingStep::~TrainingStep() = default;

double TrainingStep::now() const {
  timespec time{};
  clock_gettime(options_.clock == ClockKind::kWall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void TrainingStep::make_batch() {
  const Shape shape = kImage.batched(options_.batch);
  std::mt19937 generator(static_cast<uint32_t>(options_.seed));
  std::uniform_real_distribution<float> pixel(0.0f, 1.0f);
  std::uniform_int_distribution<int32_t> label(0, kClasses - 1);
  images_.resize(static_cast<size_t>(shape.elements()));
  labels_.resize(static_cast<size_t>(options_.batch));
  std::generate(images_.begin(), images_.end(), [&] { return pixel(generator); });
  std::generate(labels_.begin(), labels_.end(), [&] { return label(generator); });
  batch_ = {.rows = options_.batch,
            .inputs = {{{shape, DType::kF32}, images_.data()}},
            .label = {{Shape{options_.batch}, DType::kI32}, labels_.data()}};
  state_.seed = options_.seed;
  state_.inverse_batch = 1.0f / static_cast<float>(options_.batch);
}

// Network::forward runs layers and loss in one call; the first loss step tells where the one ends.
void TrainingStep::mark_loss() {
  for (PlanStep& step : network_->plan(options_.batch, Purpose::kTrain).forward) {
    if (dynamic_cast<const LossKernel*>(step.kernel) == nullptr) continue;
    step.run = [this, inner = std::move(step.run)](const Execution& on) {
      loss_began_ = now();
      inner(on);
    };
    return;
  }
  RONDO_CHECK(false);  // a training plan has a loss
}

std::array<double, kPhases> TrainingStep::run() {
  const double start = now();
  const Execution on{.stream = network_->stream(), .state = &state_};
  optimizer_->begin_step(state_);
  network_->forward(on, batch_, Mode::kTraining, sums_);
  const double forward_done = now();
  sync_->begin(on.stream);
  network_->backward(on, *sync_);
  const double backward_done = now();
  update();
  const double end = now();
  ++state_.step;
  return {loss_began_ - start, forward_done - loss_began_, backward_done - forward_done, end - backward_done,
          end - start};
}

void TrainingStep::update() {
  const Execution on{.stream = network_->stream(), .state = &state_};
  for (int b = 0; b < sync_->buckets(); ++b) {
    const BucketSpan bucket = sync_->wait(b);
    optimizer_->update(on, b, bucket.weights, bucket.gradients);
  }
}

std::string TrainingStep::describe() {
  return fmt::format("{}, {}\n{} at batch {}, {}\n{}", device_->name(), backend_->name(), options_.model,
                     options_.batch, rondo::describe(optimizer_->config()),
                     network_->describe(options_.batch, Mode::kTraining));
}

void TrainingStep::profile(size_t expected_steps) {
  Plan& plan = network_->plan(options_.batch, Purpose::kTrain);
  Phase phase = kForward;
  for (PlanStep& step : plan.forward) {
    if (dynamic_cast<const LossKernel*>(step.kernel) != nullptr) phase = kLoss;
    watch(step, phase, expected_steps);
  }
  for (PlanStep& step : plan.backward) watch(step, kBackward, expected_steps);
}

void TrainingStep::watch(PlanStep& step, Phase phase, size_t expected_steps) {
  StepProfile& profile = profiles_.emplace_back(
      StepProfile{.phase = phase,
                  .name = step.name,
                  .implementation = step.kernel ? step.kernel->implementation() : "-"});
  profile.seconds.reserve(expected_steps);
  step.run = [this, &profile, inner = std::move(step.run)](const Execution& on) {
    const double start = now();
    inner(on);
    profile.seconds.push_back(now() - start);
  };
}

}  // namespace rondo::bench
