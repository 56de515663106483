#include "bench/training_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <span>
#include <utility>

#include "models/graph/graph_compiler.h"
#include "models/graph/graph_network.h"
#include "models/losses/losses.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/self_communicator.h"
#include "runtime/device/device.h"
#include "runtime/gradsync/grad_sync.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/loss.h"
#include "runtime/optim/optimizer.h"
#include "runtime/train/state_upload.h"

namespace rondo::bench {
namespace {

const Shape kImage{28, 28, 1};
constexpr int64_t kClasses = 10;
// Of a plan's step on a GPU, for one reading of its time.
constexpr int kProfileRepeats = 20;

Binding bind(const StepOptions& options) {
  const CoreSet cores = affinity_cores();
  return bind_device({.device = options.device, .threads = options.threads}, cores, std::span(&cores, 1));
}

Buffer upload(Device& device, Stream& stream, const void* from, int64_t bytes) {
  Buffer to = device.allocate(bytes);
  stream.copy(to.data(), from, bytes);
  stream.synchronize();
  return to;
}

}  // namespace

TrainingStep::TrainingStep(const StepOptions& options)
    : options_(options),
      binding_(bind(options)),
      comm_(make_self_communicator(*binding_.device)),
      model_(zoo::make(options.model, kImage, kClasses, options.seed)) {
  require(options.batch > 0, "a step needs a batch of at least 1 image, got {}", options.batch);
  Device& device = *binding_.device;
  require(options.clock == ClockKind::kWall || (options.threads == 1 && device.host_accessible()),
          "CPU time is a measure for one thread of a host only, got {} threads of {}", options.threads,
          device.name());
  const OptimizerConfig config = optimizer_by_name(options.optimizer);
  network_ = std::make_unique<GraphNetwork>(
      model_.graph(), *binding_.backend,
      NetworkOptions{
          .nominal_rows = options.batch,
          .objective = make_objective("sparse_categorical_crossentropy", {}, model_.output_shape())});
  network_->prepare(options.batch, Mode::kTraining);
  sum_count_ = network_->metric_names().size() + 1;
  sums_ = device.allocate(static_cast<int64_t>(sum_count_ * sizeof(double)));
  sync_ = std::make_unique<GradSync>(*comm_, device, network_->parameters(),
                                     static_cast<int64_t>(sum_count_) + 1);
  optimizer_ = std::make_unique<Optimizer>(config, *binding_.backend);
  upload_ = std::make_unique<StateUpload>(device, 1);  // a step has ended before the next begins
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

double TrainingStep::done_at() {
  network_->stream().synchronize();
  return now();
}

void TrainingStep::make_batch() {
  const Shape shape = kImage.batched(options_.batch);
  std::mt19937 generator(static_cast<uint32_t>(options_.seed));
  std::uniform_real_distribution<float> pixel(0.0f, 1.0f);
  std::uniform_int_distribution<int32_t> label(0, kClasses - 1);
  std::vector<float> images(static_cast<size_t>(shape.elements()));
  std::vector<int32_t> labels(static_cast<size_t>(options_.batch));
  std::generate(images.begin(), images.end(), [&] { return pixel(generator); });
  std::generate(labels.begin(), labels.end(), [&] { return label(generator); });
  const auto up = [this](const auto& values) {
    return upload(*binding_.device, network_->stream(), values.data(),
                  static_cast<int64_t>(values.size() * sizeof(values[0])));
  };
  images_ = up(images);
  labels_ = up(labels);
  batch_ = {.rows = options_.batch,
            .inputs = {{{shape, DType::kF32}, images_.data()}},
            .labels = {{{Shape{options_.batch}, DType::kI32}, labels_.data()}}};
  state_.seed = options_.seed;
  state_.inverse_batch = 1.0f / static_cast<float>(options_.batch);
}

// Network::forward runs layers and loss in one call; the first loss step tells where the one ends.
void TrainingStep::mark_loss() {
  for (PlanStep& step : network_->plan(options_.batch, Purpose::kTrain).forward) {
    if (dynamic_cast<const LossKernel*>(step.kernel) == nullptr) continue;
    step.run = [this, inner = std::move(step.run)](const Execution& on) {
      loss_began_ = done_at();
      inner(on);
    };
    return;
  }
  RONDO_CHECK(false);  // a training plan has a loss
}

std::array<double, kPhases> TrainingStep::run() {
  const double start = now();
  const Execution on{.stream = network_->stream(), .state = upload_->device()};
  optimizer_->begin_step(state_);
  upload_->send(on.stream, state_);
  network_->forward(on, batch_, Mode::kTraining, std::span(sums_.as<double>(), sum_count_));
  const double forward_done = done_at();
  sync_->begin(on.stream);
  network_->backward(on, *sync_);
  const double backward_done = done_at();
  update();
  const double end = done_at();
  ++state_.step;
  return {loss_began_ - start, forward_done - loss_began_, backward_done - forward_done, end - backward_done,
          end - start};
}

void TrainingStep::update() {
  const Execution on{.stream = network_->stream(), .state = upload_->device()};
  for (int b = 0; b < sync_->buckets(); ++b) {
    const BucketSpan bucket = sync_->wait(b);
    optimizer_->update(on, b, bucket.weights, bucket.gradients);
  }
}

std::string TrainingStep::describe() {
  return fmt::format("{}, {}\n{} at batch {}, {}\n{}", binding_.device->name(), binding_.backend->name(),
                     options_.model, options_.batch, rondo::describe(optimizer_->config()),
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
    double start = now();
    inner(on);
    if (binding_.device->host_accessible()) {
      profile.seconds.push_back(now() - start);
      return;
    }
    // Once more and many times: what a step writes is then wrong, but its time is not.
    start = done_at();
    for (int i = 0; i < kProfileRepeats; ++i) inner(on);
    profile.seconds.push_back((done_at() - start) / kProfileRepeats);
  };
}

}  // namespace rondo::bench
