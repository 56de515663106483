#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/graph/graph.h"
#include "models/graph/objective.h"
#include "models/model.h"
#include "models/optimizer_state.h"

namespace rondo {

class Communicator;
class Device;
class GraphNetwork;
class KernelBackend;
struct ModelState;

// What a template and its parallel models have in common: layers and weights.
struct SharedGraph {
  explicit SharedGraph(Graph built) : graph(std::move(built)) {}
  Graph graph;
  const ModelState* trained_by = nullptr;  // whose trainer holds the weights in its buckets
  Communicator* world = nullptr;           // of the parallel model made last; null: none
};

// Members are destroyed from the last to the first: the trainer before the network, both before the device.
struct ModelState {
  ModelState();
  ~ModelState();

  std::string name;
  bool sequential = false;
  std::shared_ptr<SharedGraph> shared;

  std::shared_ptr<Device> own_device;  // shared with the models that are called as layers of this one
  std::shared_ptr<KernelBackend> own_backend;
  struct CoreGroup {
    std::shared_ptr<Device> device;
    std::shared_ptr<KernelBackend> backend;
  };
  std::vector<CoreGroup> own_others;
  std::unique_ptr<Communicator> own_comm;
  KernelBackend* backend = nullptr;  // null until bound
  // Of the rank's devices behind the first; those of a model without a world are made as its graph needs
  // them.
  std::vector<KernelBackend*> others;
  Communicator* comm = nullptr;

  CompileOptions options;
  std::optional<Objective> objective;  // absent: not compiled
  std::unique_ptr<GraphNetwork> network;
  std::unique_ptr<Trainer> trainer;
  std::vector<const void*> trained_at;              // where the trainer put each weight
  std::shared_ptr<Layer> as_layer;                  // null until the model is called
  std::optional<OptimizerState> pending_optimizer;  // for the next trainer

  OptimizerState read_optimizer() const;
  void write_optimizer(const OptimizerState& state);  // to the trainer, which there is
  void bind();
  // Models that are called as layers of this one, however deep, have one backend with it.
  void bind_nested();
  // Waits until nothing queued touches the weights or the networks' memory any more.
  void quiesce() const;
  // This rank's rows of a full batch, rounded up: the same on all ranks.
  int64_t nominal_rows(int64_t batch_size);
  GraphNetwork& get_network(int64_t rows);
  Trainer& get_trainer(int64_t rows);
  // The weights are still where this state's trainer put them: no trainer of another model has them now.
  bool holds_weights() const;
};

}  // namespace rondo
