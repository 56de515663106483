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
    const double factor = loss_factors[static_cast<size_t>(added++) % loss_factors.size()];
    const size_t losses = network.loss_count();
    for (size_t i = 0; i < totals.size(); ++i) totals[i] += i < losses ? values[i] * factor : values[i];
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

std::vector<std::vector<float>> predict_locally(GraphNetwork& network, const Source& data,
                                                int64_t batch_size) {
  Stream& stream = network.stream();
  const std::vector<Shape> shapes = network.output_shapes();
  BatchStream batches = batches_of(network, data, batch_size);
  std::vector<std::vector<float>> outputs;
  for (const Shape& shape : shapes) {
    outputs.emplace_back(static_cast<size_t>(data.size() * shape.elements()));
  }
  std::vector<std::span<float>> places(shapes.size());
  const QuietAtEnd quiet(stream);
  int64_t done = 0;
  batches.seek(0);
  for (int64_t step = 0; step < batches.batches_per_pass(); ++step) {
    const DeviceBatch& input = batches.next(stream);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const int64_t each = shapes[i].elements();
      places[i] =
          std::span(outputs[i])
              .subspan(static_cast<size_t>(done * each), static_cast<size_t>(input.batch.rows * each));
    }
    network.predict({.stream = stream}, input.batch, places);
    batches.done(stream);
    done += input.batch.rows;
  }
  stream.synchronize();
  return outputs;
}

}  // namespace rondo
