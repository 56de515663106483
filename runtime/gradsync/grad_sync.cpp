#include "runtime/gradsync/grad_sync.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/allocate_for.h"

namespace rondo {

namespace {

constexpr int64_t kFloat = sizeof(float);

// The order in which backward finishes gradients: that of the graph, reversed.
ParameterList backward_order(const ParameterList& parameters) {
  ParameterList order;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    if ((*it)->trainable) order.push_back(*it);
  }
  return order;
}

}  // namespace

struct GradSync::State {
  // Where a parameter stands: its bucket, and the step in which it was last ready.
  struct Entry {
    int bucket = 0;
    int64_t ready_in = 0;
    const Parameter* parameter = nullptr;
  };
  struct BucketState {
    float* weights = nullptr;
    float* gradients = nullptr;
    int64_t missing = 0;           // parameters that are not ready yet
    std::unique_ptr<Event> final;  // its gradients are, on the compute stream
    Work work;
  };

  explicit State(Communicator& communicator) : comm(communicator) {}

  Communicator& comm;
  Stream* compute = nullptr;  // of the step
  Buffer weights;             // of all buckets
  Buffer gradients;
  std::vector<BucketState> buckets;
  std::unordered_map<const Parameter*, Entry> entries;
  int64_t step = 0;
  int launched = 0;  // buckets of this step
  int waited = 0;
  double seconds = 0.0;
};

std::vector<Bucket> GradSync::plan_for(const ParameterList& parameters, int64_t tail,
                                       const BucketOptions& options) {
  std::unordered_set<const Parameter*> seen;
  std::vector<int64_t> counts;
  for (const Parameter* parameter : backward_order(parameters)) {
    const TensorDesc& desc = parameter->desc;
    require(desc.dtype == DType::kF32,
            "parameter {} is {}; only float32 can be trained: make it float32 or not trainable",
            parameter->name, dtype_name(desc.dtype));
    require(seen.insert(parameter).second,
            "parameter {} appears twice in the list; a shared one belongs there once", parameter->name);
    require(desc.bytes() == 0 || parameter->value.data != nullptr,
            "parameter {} has no values; initialize it first", parameter->name);
    counts.push_back(desc.bytes() / kFloat);
  }
  return plan_buckets(counts, tail, options);
}

GradSync::GradSync(Communicator& comm, Device& device, const ParameterList& parameters, int64_t tail,
                   const BucketOptions& options)
    : plan_(plan_for(parameters, tail, options)), state_(std::make_unique<State>(comm)) {
  State& state = *state_;
  const ParameterList order = backward_order(parameters);
  int64_t weights = 0;
  int64_t gradients = 0;
  for (const Bucket& bucket : plan_) {
    weights += bucket.count;
    gradients += bucket.count + bucket.tail;
  }
  const std::unique_ptr<Stream> stream = device.make_stream();
  state.weights =
      allocate_for(device, std::max<int64_t>(weights, 1) * kFloat, "the weights in their buckets");
  state.gradients = comm.allocate(std::max<int64_t>(gradients, 1) * kFloat);

  // Only the last bucket has a tail, so weights and gradients start at the same offsets.
  int64_t start = 0;
  for (const Bucket& bucket : plan_) {
    const int index = static_cast<int>(state.buckets.size());
    auto& placed = state.buckets.emplace_back();
    placed.weights = state.weights.as<float>() + start;
    placed.gradients = state.gradients.as<float>() + start;
    placed.final = device.make_event();
    for (const BucketSlot& slot : bucket.slots) {
      Parameter& parameter = *order[static_cast<size_t>(slot.parameter)];
      float* value = placed.weights + slot.offset;
      if (slot.count > 0) stream->copy(value, parameter.value.data, slot.count * kFloat);
      parameter.value = {parameter.desc, value};
      parameter.grad = {parameter.desc, placed.gradients + slot.offset};
      stream->synchronize();  // before the old values go
      parameter.value_storage = state.weights;
      parameter.grad_storage = state.gradients;
      state.entries[&parameter] = {.bucket = index, .parameter = &parameter};
    }
    start += bucket.count;
  }
  state.launched = state.waited = buckets();
}

GradSync::~GradSync() = default;

void GradSync::begin(Stream& compute) {
  State& state = *state_;
  if (state.waited != buckets()) {
    raise<InternalError>("a step begins, but bucket {} of {} of the step before was not waited for",
                         state.waited, buckets());
  }
  ++state.step;
  state.compute = &compute;
  state.launched = state.waited = 0;
  for (size_t b = 0; b < plan_.size(); ++b) {
    state.buckets[b].missing = static_cast<int64_t>(plan_[b].slots.size());
  }
}

std::span<float> GradSync::tail() {
  const Bucket& last = plan_.back();
  return {state_->buckets.back().gradients + last.count, static_cast<size_t>(last.tail)};
}

void GradSync::ready(Parameter& parameter) {
  State& state = *state_;
  const auto found = state.entries.find(&parameter);
  if (found == state.entries.end()) {
    raise<InternalError>("parameter {} is ready, but not among the trainable parameters being synchronized",
                         parameter.name);
  }
  State::Entry& entry = found->second;
  if (entry.ready_in == state.step) {
    raise<InternalError>("parameter {} is ready twice in one step; a shared one is ready at its last use",
                         parameter.name);
  }
  entry.ready_in = state.step;
  --state.buckets[static_cast<size_t>(entry.bucket)].missing;
  const Timed timed(state.seconds);
  launch_full_buckets();
  state.comm.progress();
}

void GradSync::contribute_zeros() {
  State& state = *state_;
  for (auto& [parameter, entry] : state.entries) {
    if (entry.ready_in == state.step) {
      raise<InternalError>("parameter {} is ready already; zeros are for ranks without a backward pass",
                           parameter->name);
    }
    entry.ready_in = state.step;
  }
  for (size_t b = 0; b < plan_.size(); ++b) {
    state.compute->fill_zero(state.buckets[b].gradients, plan_[b].count * kFloat);
    state.buckets[b].missing = 0;
  }
  const Timed timed(state.seconds);
  launch_full_buckets();
}

void GradSync::abandon() {
  for (State::BucketState& bucket : state_->buckets) bucket.work.abandon();
  state_->launched = state_->waited = buckets();
}

void GradSync::launch_full_buckets() {
  State& state = *state_;
  while (state.launched < buckets() && state.buckets[static_cast<size_t>(state.launched)].missing == 0) {
    const auto b = static_cast<size_t>(state.launched);
    const Span span{state.buckets[b].gradients, plan_[b].count + plan_[b].tail, DType::kF32};
    state.compute->record(*state.buckets[b].final);
    state.buckets[b].work = state.comm.all_reduce(
        span, span, ReduceOp::kSum, {.after = state.buckets[b].final.get(), .label = "gradients"});
    ++state.launched;
  }
}

BucketSpan GradSync::wait(int bucket) {
  State& state = *state_;
  if (bucket != state.waited || bucket >= buckets()) {
    raise<InternalError>("bucket {} is waited for, but bucket {} of {} is next", bucket, state.waited,
                         buckets());
  }
  const auto b = static_cast<size_t>(bucket);
  State::BucketState& waited = state.buckets[b];
  if (waited.missing > 0) {
    for (const auto& [parameter, entry] : state.entries) {
      if (entry.bucket != bucket || entry.ready_in == state.step) continue;
      raise<InternalError>(
          "bucket {} is waited for, but {} of its {} parameters are not ready, {} among them", bucket,
          waited.missing, plan_[b].slots.size(), parameter->name);
    }
  }
  const Timed timed(state.seconds);
  launch_full_buckets();  // a bucket without parameters is launched by nobody else
  waited.work.order_before(*state.compute);
  waited.work = {};
  ++state.waited;
  return this->bucket(bucket);
}

BucketSpan GradSync::bucket(int bucket) const {
  const auto b = static_cast<size_t>(bucket);
  const State::BucketState& of = state_->buckets.at(b);
  const auto count = static_cast<size_t>(plan_[b].count);
  return {.weights = {of.weights, count}, .gradients = {of.gradients, count}};
}

double GradSync::seconds() const {
  return state_->seconds;
}

}  // namespace rondo
