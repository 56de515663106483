#include "models/local_evaluation.h"

#include <span>
#include <vector>

#include "models/graph/graph_network.h"
#include "runtime/base/error.h"
#include "runtime/data/source.h"
#include "runtime/device/quiet_at_end.h"
#include "runtime/kernels/backend.h"
#include "runtime/train/batch_stream.h"
#include "runtime/train/read_back.h"

namespace rondo {
namespace {

BatchStream batches_of(const GraphNetwork& network, const Source& data, int64_t batch_size) {
  require(data.size() > 0, "{} is empty; at least one sample is needed", data.name());
  return {data, {.size = data.size(), .batch = batch_size, .shuffle = false}, 1, network.backend().device()};
}

}  // namespace

Logs evaluate_locally(GraphNetwork& network, const Source& data, int64_t batch_size) {
  Device& device = network.backend().device();
  Stream& stream = network.stream();
  std::vector<double> totals(network.sum_count());
  const auto bytes = static_cast<int64_t>(totals.size() * sizeof(double));
  const int ahead = device.host_accessible() ? 0 : 1;  // batches queued behind the one whose sums are read
  BatchStream batches = batches_of(network, data, batch_size);
  const Buffer sums = device.allocate(bytes);
  ReadBack results(device, bytes, ahead + 1);
  const QuietAtEnd quiet(stream);
  const ReadBack::Piece all{.data = sums.data(), .bytes = bytes};
  // As the trainer's evaluation: a loss that is the sum over its batch counts for each of its rows.
  std::vector<double> loss_factors(static_cast<size_t>(ahead + 1), 1.0);
  int64_t added = 0;
  const auto add_oldest = [&] {
    const auto* values = reinterpret_cast<const double*>(results.receive());
    totals[0] += values[0] * loss_factors[static_cast<size_t>(added++) % loss_factors.size()];
    for (size_t i = 1; i < totals.size(); ++i) totals[i] += values[i];
  };
  batches.seek(0);
  for (int64_t step = 0; step < batches.batches_per_pass(); ++step) {
    const DeviceBatch& input = batches.next(stream);
    network.forward({.stream = stream}, input.batch, Mode::kInference, {sums.as<double>(), totals.size()});
    results.send(stream, std::span(&all, 1));
    if (network.sums_loss()) {
      loss_factors[static_cast<size_t>(step) % loss_factors.size()] = static_cast<double>(input.batch.rows);
    }
    batches.done(stream);
    if (results.underway() > ahead) add_oldest();
  }
  while (results.underway() > 0) add_oldest();

  std::vector<double> values(1 + network.metric_names().size());
  network.values_of(totals, static_cast<double>(data.size()), values);
  Logs logs{{"loss", values[0]}};
  for (size_t i = 1; i < values.size(); ++i) logs.emplace_back(network.metric_names()[i - 1], values[i]);
  return logs;
}

std::vector<float> predict_locally(GraphNetwork& network, const Source& data, int64_t batch_size) {
  Stream& stream = network.stream();
  const int64_t per_row = network.output_shape().elements();
  BatchStream batches = batches_of(network, data, batch_size);
  std::vector<float> outputs(static_cast<size_t>(data.size() * per_row));
  const QuietAtEnd quiet(stream);
  float* next = outputs.data();
  batches.seek(0);
  for (int64_t step = 0; step < batches.batches_per_pass(); ++step) {
    const DeviceBatch& input = batches.next(stream);
    const auto count = static_cast<size_t>(input.batch.rows * per_row);
    network.predict({.stream = stream}, input.batch, {next, count});
    batches.done(stream);
    next += count;
  }
  stream.synchronize();
  return outputs;
}

}  // namespace rondo
