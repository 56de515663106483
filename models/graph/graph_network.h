#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/graph/objective.h"
#include "runtime/base/precision.h"
#include "runtime/device/device.h"
#include "runtime/train/network.h"

namespace rondo {

class Graph;
class KernelBackend;
class Lanes;
class WeightConstraints;
enum class Purpose : uint8_t;
struct Plan;
struct PlanRequest;

struct NetworkOptions {
  // The sub-batch for which kernels choose the layouts of weights that no device holds yet: the same on all
  // ranks.
  int64_t nominal_rows = 32;
  std::optional<Objectives> objective = std::nullopt;  // absent: prediction only
  bool reuse_memory = true;                            // false: no two values share memory, for diagnosis
  Precision precision = Precision::kF32;               // weights are float32 in any
  // Of the rank's devices behind the first, for graphs that are placed on them; they outlive the network.
  std::vector<KernelBackend*> others = {};
};

// A graph on a backend: plans for the row counts that come up, over one arena. Graph and backend must outlive
// it. Two networks may be made of one graph on one backend; they share its weights.
class GraphNetwork final : public Network {
 public:
  // Puts the graph's weights on the device: the first one, where they are several. Throws what compile_plan
  // and the backends throw.
  GraphNetwork(const Graph& graph, KernelBackend& backend, NetworkOptions options);
  ~GraphNetwork() override;

  const ParameterList& parameters() override;
  const std::vector<std::string>& metric_names() override { return metric_names_; }
  size_t sum_count() override { return options_.objective ? options_.objective->sum_count() : 1; }
  size_t loss_count() override { return options_.objective ? options_.objective->loss_count() : 1; }
  void values_of(std::span<const double> sums, double rows, std::span<double> values) override;
  bool sums_loss() override { return options_.objective && options_.objective->sums_loss(); }
  void prepare(int64_t rows, Mode mode) override;
  void forward(const Execution& on, const Batch& batch, Mode mode, std::span<double> sums) override;
  void backward(const Execution& on, GradSink& sink) override;
  // Nothing for a network on several devices: its steps are queued one by one.
  std::optional<std::vector<Buffer>> replay_memory() override;
  void constrain(const Execution& on) override;
  void predict(const Execution& on, const Batch& batch, std::span<const std::span<float>> outputs) override;
  std::vector<Shape> output_shapes() const override;

  KernelBackend& backend() const { return *backends_.front(); }
  // For programs without a stream of their own.
  Stream& stream() const { return *stream_; }
  // Made when it is not there yet, while no pass is underway. A measurement may wrap the functions of its
  // steps.
  Plan& plan(int64_t rows, Purpose purpose);
  // The memory of all plans on the first device; replaced by a larger one when a plan needs it.
  const Buffer& arena() const { return arena_; }
  std::string describe(int64_t rows, Mode mode);

 private:
  Plan& get_plan(int64_t rows, Purpose purpose);
  // The plan for a pass on this stream, which is waited for if the plan has yet to be made.
  Plan& plan_for(Stream& stream, int64_t rows, Purpose purpose);
  void reserve(Plan& plan);
  void bind(Plan& plan) const;
  void run_forward(const Plan& plan, const Execution& on);
  // What to do when the device has too little memory for this plan: ". About 60 rows ..."
  std::string what_would_fit(PlanRequest request);
  void set_inputs(Plan& plan, const Batch& batch) const;
  void set_label(Plan& plan, const Batch& batch, size_t index) const;

  const Graph& graph_;
  std::vector<KernelBackend*> backends_;
  NetworkOptions options_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::string> metric_names_;
  std::map<std::pair<int64_t, Purpose>, std::unique_ptr<Plan>> plans_;
  Buffer arena_;
  Buffer scratch_;
  // Of the other devices that the graph is placed on.
  std::vector<Buffer> other_arenas_;
  std::vector<Buffer> other_scratch_;
  std::vector<void*> other_scratch_data_;
  std::unique_ptr<WeightConstraints> constraints_;  // null without
  std::unique_ptr<Lanes> lanes_;                    // null where there are none
  double* sums_ = nullptr;                          // where the pass being queued writes loss and metrics
  Plan* pending_ = nullptr;                         // whose backward is due
};

// Memory for the gradients of a network's trainable parameters, for programs without a GradSync.
void allocate_gradients(Network& network, Device& device);

}  // namespace rondo
