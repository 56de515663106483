#include "runtime/train/trainer.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/data/source.h"
#include "runtime/device/quiet_at_end.h"
#include "runtime/kernels/backend.h"
#include "runtime/train/facts.h"
#include "runtime/train/fit_run.h"
#include "runtime/train/network.h"
#include "runtime/train/trainer_state.h"

namespace rondo {

size_t TrainerState::metric_count() const {
  return network.metric_names().size();
}

Device& TrainerState::device() const {
  return backend.device();
}

// Two: while the host reads the results of a step and its callbacks run, the device has one to work on, and
// the next is queued.
int TrainerState::run_ahead() const {
  return device().host_accessible() ? 0 : 2;
}

void TrainerState::scale_losses(const LossScaling& scaling) {
  loss_scaler = backend.loss_scale(scaling);
  loss_scale = device().allocate(sizeof(LossScale));
  known_scale = {.scale = scaling.initial};
  stream->copy(loss_scale.data(), &known_scale, sizeof(LossScale));
  stream->synchronize();
}

std::vector<std::string> value_names(Network& network) {
  std::vector<std::string> names{"loss"};
  names.insert(names.end(), network.metric_names().begin(), network.metric_names().end());
  return names;
}

void tell_peers(Communicator& comm, const std::function<std::string()>& where,
                const std::function<void()>& action) {
  try {
    action();
  } catch (const PeerError&) {
    throw;
  } catch (const std::exception& e) {
    comm.publish_failure(where() + e.what());
    throw;
  } catch (...) {
    comm.publish_failure(where() + "an exception that is not a std::exception");
    throw;
  }
}

namespace {

// Initializers may have run with other seeds, or a file was read on one rank only.
void broadcast_values(Communicator& comm, const ParameterList& parameters) {
  for (const Parameter* parameter : parameters) {
    const Span bytes{parameter->value.data, parameter->desc.bytes(), DType::kU8};
    comm.broadcast(bytes, 0, {.label = parameter->name}).wait();
  }
}

// The values have just been laid into the buckets.
void bind_optimizer(TrainerState& state) {
  std::vector<SpanLayout> spans(static_cast<size_t>(state.sync->buckets()));
  for (int b = 0; b < state.sync->buckets(); ++b) {
    const std::span<float> weights = state.sync->bucket(b).weights;
    SpanLayout& span = spans[static_cast<size_t>(b)];
    span.count = static_cast<int64_t>(weights.size());
    for (const Parameter* parameter : state.network.parameters()) {
      const auto* values = parameter->value.as<const float>();
      if (!parameter->trainable || values < weights.data() || values >= weights.data() + weights.size()) {
        continue;
      }
      const int64_t offset = values - weights.data();
      const int64_t count = parameter->desc.bytes() / dtype_size(DType::kF32);
      span.tensors.push_back({.name = parameter->name, .offset = offset, .count = count});
      state.places[parameter] = {.bucket = b, .offset = offset};
    }
    std::sort(span.tensors.begin(), span.tensors.end(),
              [](const SpanTensor& a, const SpanTensor& c) { return a.offset < c.offset; });
  }
  state.optimizer->bind(spans);
}

}  // namespace

Trainer::Trainer(Communicator& comm, KernelBackend& backend, Network& network, const TrainerOptions& options)
    : state_(new TrainerState{.comm = comm, .backend = backend, .network = network}) {
  TrainerState& state = *state_;
  const ParameterList& parameters = network.parameters();
  const std::vector<std::string> names = value_names(network);
  const auto tail = static_cast<int64_t>(network.sum_count() + 1);  // sums, and the vote to stop
  std::vector<Bucket> plan;
  all_or_none(comm, "setting up the trainer", [&] {
    state.stream = backend.device().make_stream();
    state.optimizer = std::make_unique<Optimizer>(options.optimizer, backend);
    if (options.precision == Precision::kF16) state.scale_losses(options.loss_scaling);
    plan = GradSync::plan_for(parameters, tail, options.buckets);
    state.statistics = std::make_unique<ReplicaStatistics>(comm, *state.stream, parameters);
  });
  agree_on(comm, trainer_facts(parameters, names, options, plan));

  state.sync = std::make_unique<GradSync>(comm, backend.device(), parameters, tail, options.buckets);
  all_or_none(comm, "allocating the optimizer's state", [&] { bind_optimizer(state); });

  broadcast_values(comm, parameters);
  const Fact values[] = {value_fact(parameters, *state.stream)};
  agree_on(comm, values);
}

Trainer::~Trainer() = default;

History Trainer::fit(const Source& data, const FitOptions& options) {
  std::vector<Fact> facts;
  all_or_none(state_->comm, "checking the options of fit", [&] {
    check_fit(data, options);
    facts = fit_facts(data, options);
  });
  agree_on(state_->comm, facts);

  std::optional<FitRun> run;
  all_or_none(state_->comm, "preparing to train", [&] { run.emplace(*state_, data, options); });
  return run->run();
}

Logs Trainer::evaluate(const Source& data, int64_t batch_size) {
  Communicator& comm = state_->comm;
  std::vector<Fact> facts{{"batch_size", fmt::format("{}", batch_size)}};
  std::optional<Evaluation> evaluation;
  all_or_none(comm, "preparing to evaluate", [&] {
    synchronize();
    check_data("the evaluation data", data, batch_size);
    add_data_facts(facts, "evaluation data", data);
    evaluation.emplace(*state_, data, batch_size, 1);
  });
  agree_on(comm, facts);

  state_->statistics->merge();
  std::vector<double> means;
  tell_peers(
      comm, [] { return "evaluation: "; }, [&] { means = evaluation->run(); });
  Logs logs;
  const std::vector<std::string> names = value_names(state_->network);
  for (size_t i = 0; i < names.size(); ++i) logs.emplace_back(names[i], means[i]);
  return logs;
}

std::vector<std::vector<float>> Trainer::predict(const Source& data, int64_t batch_size) {
  Communicator& comm = state_->comm;
  Network& network = state_->network;
  Stream& stream = *state_->stream;
  const SamplerOptions order = in_order(comm, data, batch_size);
  std::vector<Fact> facts{{"batch_size", fmt::format("{}", batch_size)}};
  std::optional<BatchStream> batches;
  std::vector<int64_t> per_row;  // elements of each output
  std::vector<std::vector<float>> outputs;
  std::vector<Buffer> mine;  // this rank's rows of a batch
  all_or_none(comm, "preparing to predict", [&] {
    synchronize();
    check_data("the data to predict", data, batch_size);
    add_data_facts(facts, "data to predict", data);
    batches.emplace(data, order, 1, state_->device());
    prepare_shares(network, order, Mode::kInference);
    for (const Shape& shape : network.output_shapes()) {
      per_row.push_back(shape.elements());
      outputs.emplace_back(static_cast<size_t>(data.size() * per_row.back()));
      mine.push_back(state_->device().allocate_host(Sampler(order).max_rows() * per_row.back() *
                                                    dtype_size(DType::kF32)));
    }
  });
  agree_on(comm, facts);

  state_->statistics->merge();
  const QuietAtEnd quiet(stream);
  const auto run = [&] {
    std::vector<int64_t> counts(static_cast<size_t>(comm.size()));
    std::vector<std::span<float>> places(mine.size());
    int64_t done = 0;
    batches->seek(0);
    for (int64_t step = 0; step < batches->batches_per_pass(); ++step) {
      const DeviceBatch& input = batches->next(stream);
      const int64_t global_rows = input.share.global_rows;
      for (size_t i = 0; i < mine.size(); ++i) {
        places[i] = {mine[i].as<float>(), static_cast<size_t>(input.batch.rows * per_row[i])};
      }
      if (input.batch.rows > 0) network.predict({.stream = stream}, input.batch, places);
      batches->done(stream);
      stream.synchronize();
      // Ranks hold consecutive rows of the batch, so rank order is the order of the data.
      for (size_t i = 0; i < mine.size(); ++i) {
        for (int r = 0; r < comm.size(); ++r) {
          counts[static_cast<size_t>(r)] = share_of(global_rows, r, comm.size()).rows * per_row[i];
        }
        const ConstSpan in{mine[i].data(), static_cast<int64_t>(places[i].size()), DType::kF32};
        const Span out{outputs[i].data() + done * per_row[i], global_rows * per_row[i], DType::kF32};
        comm.host().all_gather_v(in, out, counts, {.label = "predictions"}).wait();
      }
      done += global_rows;
    }
  };
  tell_peers(
      comm, [] { return "prediction: "; }, run);
  return outputs;
}

void Trainer::synchronize() {
  state_->stream->synchronize();
}

Optimizer& Trainer::optimizer() {
  return *state_->optimizer;
}

std::vector<Tensor> Trainer::slots(const Parameter& parameter) {
  const auto found = state_->places.find(&parameter);
  require(found != state_->places.end(),
          "the optimizer keeps nothing for parameter {}: it is not trained here", parameter.name);
  const ParameterPlace& place = found->second;
  std::vector<Tensor> slots;
  const size_t count = slot_names(state_->optimizer->config()).size();
  for (size_t s = 0; s < count; ++s) {
    const std::span<float> all = state_->optimizer->slot(place.bucket, static_cast<int>(s));
    slots.push_back({.desc = parameter.desc, .data = all.data() + place.offset});
  }
  return slots;
}

int64_t Trainer::steps_done() const {
  return state_->steps_done - state_->known_scale.skipped;
}

void Trainer::set_steps_done(int64_t steps) {
  require(steps >= 0, "the number of training steps done is {}; it must not be negative", steps);
  state_->steps_done = steps + state_->known_scale.skipped;
}

}  // namespace rondo
