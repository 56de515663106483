#include "models/local_evaluation.h"

#include <functional>
#include <memory>

#include "models/graph/graph_network.h"
#include "runtime/base/error.h"
#include "runtime/data/loader.h"
#include "runtime/data/sampler.h"
#include "runtime/data/source.h"

namespace rondo {
namespace {

void for_each_batch(const Source& data, int64_t batch_size,
                    const std::function<void(const LoadedBatch&)>& use) {
  require(data.size() > 0, "{} is empty; at least one sample is needed", data.name());
  const std::shared_ptr<const Source> borrowed{std::shared_ptr<const void>(), &data};
  Loader loader(borrowed, Sampler({.size = data.size(), .batch = batch_size, .shuffle = false}));
  loader.start(0);
  while (const LoadedBatch* batch = loader.next()) use(*batch);
}

}  // namespace

Logs evaluate_locally(GraphNetwork& network, const Source& data, int64_t batch_size) {
  std::vector<double> sums(network.metric_names().size() + 1);
  std::vector<double> totals(sums.size());
  for_each_batch(data, batch_size, [&](const LoadedBatch& loaded) {
    const Batch batch{.rows = loaded.share.rows, .inputs = {loaded.input}, .label = loaded.labels};
    network.forward(batch, Mode::kInference, {}, sums);
    for (size_t i = 0; i < sums.size(); ++i) totals[i] += sums[i];
  });
  const auto samples = static_cast<double>(data.size());
  Logs logs{{"loss", totals[0] / samples}};
  for (size_t i = 1; i < totals.size(); ++i) {
    logs.emplace_back(network.metric_names()[i - 1], totals[i] / samples);
  }
  return logs;
}

std::vector<float> predict_locally(GraphNetwork& network, const Source& data, int64_t batch_size) {
  const int64_t per_row = network.output_shape().elements();
  std::vector<float> outputs(static_cast<size_t>(data.size() * per_row));
  float* next = outputs.data();
  for_each_batch(data, batch_size, [&](const LoadedBatch& loaded) {
    const Batch batch{.rows = loaded.share.rows, .inputs = {loaded.input}, .label = {}};
    const auto count = static_cast<size_t>(batch.rows * per_row);
    network.predict(batch, {next, count});
    next += count;
  });
  return outputs;
}

}  // namespace rondo
