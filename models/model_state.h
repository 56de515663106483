#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "models/graph/graph.h"
#include "models/graph/objective.h"
#include "models/model.h"

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

  std::unique_ptr<Device> own_device;
  std::unique_ptr<KernelBackend> own_backend;
  std::unique_ptr<Communicator> own_comm;
  KernelBackend* backend = nullptr;  // null until bound
  Communicator* comm = nullptr;

  CompileOptions options;
  std::optional<Objective> objective;  // absent: not compiled
  std::unique_ptr<GraphNetwork> network;
  std::unique_ptr<Trainer> trainer;

  void bind();
  // Waits until nothing queued touches the weights or the networks' memory any more.
  void quiesce() const;
  // This rank's rows of a full batch, rounded up: the same on all ranks.
  int64_t nominal_rows(int64_t batch_size);
  GraphNetwork& get_network(int64_t rows);
  Trainer& get_trainer(int64_t rows);
};

}  // namespace rondo
