#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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

// What a template and its parallel models have in common: layers and weights.
struct SharedGraph {
  explicit SharedGraph(Graph built) : graph(std::move(built)) {}
  Graph graph;
  Communicator* world = nullptr;  // of the parallel model made last; null: none
};

// The devices of a model, and of every model that has a weight with it: whichever is bound first decides.
struct ModelHome {
  struct CoreGroup {
    std::unique_ptr<Device> device;
    std::unique_ptr<KernelBackend> backend;
  };
  ModelHome(KernelBackend& first, std::span<KernelBackend* const> more);  // somebody else's
  explicit ModelHome(int devices);  // of its own: all cores of the process, in equal groups
  ~ModelHome();
  // Makes groups as they are needed, where they are its own.
  void provide(int devices);

  std::vector<CoreGroup> own;
  KernelBackend* backend = nullptr;
  std::vector<KernelBackend*> others = {};  // of the rank's devices behind the first
};

// The devices of the two reach each other's memory, so that models on them can share weights.
bool can_share(const KernelBackend& one, const KernelBackend& other);

// Members are destroyed from the last to the first: the trainer before the network, both before the device.
struct ModelState {
  ModelState();
  ~ModelState();

  std::string name;
  bool sequential = false;
  std::shared_ptr<SharedGraph> shared;

  std::shared_ptr<ModelHome> home;  // null until bound
  std::unique_ptr<Communicator> own_comm;
  Communicator* comm = nullptr;

  CompileOptions options;
  std::optional<Objectives> objective;   // absent: not compiled
  std::vector<bool> compiled_trainable;  // of the graph's parameters
  std::unique_ptr<GraphNetwork> network;
  std::unique_ptr<Trainer> trainer;
  std::vector<const void*> trained_at;              // where the trainer put each weight
  std::shared_ptr<Layer> as_layer;                  // null until the model is called
  std::optional<OptimizerState> pending_optimizer;  // for the next trainer

  OptimizerState read_optimizer() const;
  void write_optimizer(const OptimizerState& state);  // to the trainer, which there is
  // To the devices where weights of the graph are already; else to `wanted`, else to some of its own.
  void bind(std::shared_ptr<ModelHome> wanted = nullptr);
  // Waits until nothing queued touches the weights or the networks' memory any more.
  void quiesce() const;
  // This rank's rows of a full batch, rounded up: the same on all ranks.
  int64_t nominal_rows(int64_t batch_size);
  std::vector<bool> trainable() const;  // of the graph's parameters, now
  // The ranks that train it together.
  Communicator& world();
  GraphNetwork& get_network(int64_t rows);
  Trainer& get_trainer(int64_t rows);
  // The weights are still where this state's trainer put them: no trainer of another model has them now.
  bool holds_weights() const;
};

}  // namespace rondo
