// Model: Keras' model. A graph of layers with compile, fit, evaluate and predict.
//
//   auto in = layers::Input({.shape = {28, 28, 1}});
//   auto x = layers::Conv2D{.filters = 32, .kernel_size = {3, 3}, .activation = "relu"}(in);
//   ...
//   Model model({in}, {out});
//   model.compile({.optimizer = Adam{}, .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}});
//   model.fit(data, {.batch_size = 64, .epochs = 3});
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "models/graph/layer.h"
#include "models/keras/dialect.h"
#include "models/losses/config.h"
#include "runtime/base/precision.h"
#include "runtime/gradsync/bucket_plan.h"
#include "runtime/kernels/step.h"
#include "runtime/optim/optimizer.h"
#include "runtime/train/trainer.h"

namespace rondo {

class Communicator;
class Graph;
class GraphNetwork;
class KernelBackend;
class Source;
class World;
struct ModelState;
struct OptimizerState;

struct ModelOptions {
  std::string name = "model";
  uint64_t seed = 0;  // of the initial weights
};

struct CompileOptions {
  OptimizerConfig optimizer = RMSprop{};
  // Of models with several outputs one for all or one for each: see losses/config.h. The total is the sum of
  // the outputs' losses, each times its weight, and of the penalties. Outputs without a loss are not trained.
  OutputLosses loss;
  LossWeights loss_weights = {};
  OutputMetrics metrics = {};
  // Metrics in which samples count as sample_weight and class_weight say, divided by the sum of the weights.
  OutputMetrics weighted_metrics = {};
  BucketOptions buckets = {};
  // In which layers compute; weights and whatever the user sees are float32 in any. kBF16 and kF16 are for
  // GPUs. With kF16 the gradients are scaled as loss_scaling says, and a step in which one overflows changes
  // no weight.
  Precision precision = Precision::kF32;
  LossScaling loss_scaling = {};
};

struct ModelFitOptions {
  // Global: shared by the ranks. 0, as Keras' None: with steps_per_epoch so many that these steps are one
  // pass, else 32.
  int64_t batch_size = 32;
  int64_t epochs = 1;  // index of the last epoch: training runs from initial_epoch to here
  int64_t initial_epoch = 0;
  int64_t steps_per_epoch = 0;  // 0: one pass over the data
  bool shuffle = true;
  uint64_t seed = 0;                            // of the order and of dropout
  double validation_split = 0.0;                // this part of the data, its last samples, is held out
  const Source* validation_data = nullptr;      // takes precedence over validation_split
  int64_t validation_batch_size = 0;            // 0: batch_size
  int64_t validation_freq = 1;                  // validate after epochs whose number (from 1) it divides
  std::vector<int64_t> validation_epochs = {};  // ... or only after these, numbered from 1
  // Weights of the samples' losses, one for each sample of the data, or for outputs with a time axis one for
  // each time step; and by class, where the classes must be 0 to C - 1 as in tf.keras, for models with one
  // output; see WeightedSource. They do not change what the mean divides by. A part held out by
  // validation_split keeps its sample weights and has no class weights; metrics have neither, but for
  // weighted_metrics.
  SampleWeights sample_weight = {};
  std::map<int64_t, double> class_weight = {};
  int loader_threads = 1;
  bool replay_steps = true;  // as CUDA graphs, where they can be: see FitOptions
  std::vector<Callback*> callbacks = {};
};

struct LoadWeightsOptions {
  // Layers of equal names instead of equal places; the others keep their weights.
  bool by_name = false;
};

struct SaveOptions {
  KerasDialect dialect = KerasDialect::kTfKeras;
};

// A handle: copies are the same model.
class Model {
 public:
  // Throws InvalidArgument when the graph between inputs and outputs is broken (see graph.h).
  Model(std::vector<SymbolicTensor> inputs, std::vector<SymbolicTensor> outputs,
        const ModelOptions& options = {});

  const std::string& name() const;
  const Graph& graph() const;
  // Keras' get_layer: by name, of this model, not of models nested in it. Throws InvalidArgument that lists
  // the names. get_layer("conv1").set_trainable(false) freezes a layer for what is compiled afterwards.
  Layer& get_layer(std::string_view name) const;
  // What the layer gives here, to build another model on that shares the layers below (model.layers[i].output
  // in Keras). Throws InvalidArgument for an unknown layer, and for one that is called several times.
  SymbolicTensor layer_output(std::string_view name) const;
  // Of all layers, nested ones too.
  void set_trainable(bool trainable);
  // Extents of one sample, of the first input and the first output.
  Shape input_shape() const;
  Shape output_shape() const;

  // Calls the model as a layer of another, sharing its layers and weights: a tensor for each input. Throws
  // InvalidArgument for other shapes than its inputs', Unavailable for a model with several outputs.
  SymbolicTensor operator()(const SymbolicTensor& input) const;
  SymbolicTensor operator()(const std::vector<SymbolicTensor>& inputs) const;
  // The same for a Sequential's list.
  LayerHandle as_layer() const;

  // Checks every name; throws InvalidArgument that lists what there is, and Unavailable for a precision that
  // the model's device does not compute in; where that is chosen later, fit, evaluate and predict say so.
  void compile(const CompileOptions& options);

  // What compile was called with last, also by load_model; null before.
  const CompileOptions* compile_options() const;

  // Data of models with several inputs or outputs has several inputs or labels: ArraySource of ArraysData, or
  // a Source of one's own. Where all of them are named, they go to the inputs and outputs of these names, and
  // others are left out; else they go by their order. Labels there are for every output, or for those only
  // that have a loss or metrics.
  //
  // Collective over the model's world. Throws InvalidArgument when the model is not compiled or the data does
  // not fit the model or the losses. A later fit goes on with the optimizer's state. The history has the
  // names of tf.keras: "loss"; of several outputs "main_loss", ...; "accuracy", or "main_accuracy", ...,
  // output by output; then all of them with "val_" in front.
  History fit(const Source& data, const ModelFitOptions& options = {});
  // Collective. Losses, then metrics: means over all samples, each counted once.
  Logs evaluate(const Source& data, int64_t batch_size = 32, const SampleWeights& sample_weight = {});
  // Collective. The output in the order of the data, on every rank; needs no compile. Throws InvalidArgument
  // for a model with several outputs.
  std::vector<float> predict(const Source& data, int64_t batch_size = 32);
  // The same with an array for each output.
  std::vector<std::vector<float>> predict_outputs(const Source& data, int64_t batch_size = 32);

  // Canonical values in Keras' order: layer by layer, trainable weights before the others.
  std::vector<std::vector<float>> get_weights() const;
  // Throws InvalidArgument that names the first weight that does not fit, before anything is changed.
  void set_weights(const std::vector<std::vector<float>>& values);
  int64_t count_params() const;
  // Keras' table.
  std::string summary() const;

  // Files of Keras; files.h loads whole models. A model that is trained over ranks, and the template it was
  // made from, save and load collectively: the first rank writes, every rank reads, and a failure on one is
  // the same FileError on all. A file is replaced as a whole or not at all.
  //
  // To .h5, .hdf5 or a .keras archive: structure, weights, how the model is compiled and its optimizer's
  // state. Throws InvalidArgument for other names.
  void save(const std::string& path, const SaveOptions& options = {}) const;
  // Weights alone: to .h5 or .hdf5 in the layout of tf.keras 2.x, or to .weights.h5 in that of archives.
  void save_weights(const std::string& path, const SaveOptions& options = {}) const;
  // From any of these files, whichever Keras wrote it, also one saved from Keras' own parallel model. Throws
  // FileError that names the first weight that does not fit, with both shapes, before anything is changed.
  void load_weights(const std::string& path, const LoadWeightsOptions& options = {});
  // The structure; in one line, or with `indent` blanks a level.
  std::string to_json(int indent = -1, KerasDialect dialect = KerasDialect::kTfKeras) const;

  // Readies the network for sub-batches of `rows` and gives it, for programs with a loop of their own.
  GraphNetwork& network(int64_t rows);
  // The optimizer of the last fit; throws InvalidArgument before the first.
  Optimizer& optimizer();
  // What the optimizer has learned, in canonical order and named as in Keras' files; the same on every rank.
  OptimizerState optimizer_state() const;
  // Goes on from there at the next fit. For all ranks to call alike, after compile. Arrays are matched by
  // their order, not by name, as Keras does; without arrays only the iterations count. Arrays of weights
  // on which no loss depends may be missing, as tf.keras leaves them out. Throws InvalidArgument that names
  // the first array that does not fit, before anything is changed.
  void set_optimizer_state(const OptimizerState& state);

 protected:
  ModelState& state() { return *state_; }

 private:
  explicit Model(std::shared_ptr<ModelState> state) : state_(std::move(state)) {}
  friend struct ModelAccess;
  friend struct ModelFiles;
  std::shared_ptr<ModelState> state_;
};

// A chain of layers; the first one is Input.
class Sequential : public Model {
 public:
  Sequential(std::initializer_list<LayerHandle> layers, const ModelOptions& options = {.name = "sequential"});
  explicit Sequential(std::span<const LayerHandle> layers,
                      const ModelOptions& options = {.name = "sequential"});

 private:
  Sequential(const std::vector<SymbolicTensor>& ends, const ModelOptions& options);
};

struct MultiGpuOptions {
  // Devices to use, one per rank: a count, a list of ids, or absent (or 0, or an empty list, as in Keras) for
  // all ranks of the world.
  std::optional<std::variant<int, std::vector<int>>> gpus = std::nullopt;
  bool cpu_merge = true;        // accepted for compatibility: outputs are merged on the host
  bool cpu_relocation = false;  // accepted for compatibility: weights are shared either way
};

// Keras' multi_gpu_model over ranks: a model that trains and predicts over all ranks of `world`, each with
// its share of every batch, and shares its weights with `model`: after parallel.fit the template has them, on
// every rank. The world must outlive both. models/MULTI_GPU.md compares it with Keras' rule by rule. Throws
// InvalidArgument, naming the devices that were asked for and those there are, for fewer than two devices,
// ids that no rank has or that come twice, and for fewer devices than ranks.
Model multi_gpu_model(const Model& model, World& world, const MultiGpuOptions& options = {});
// The same for programs that have a communicator and a backend but no World.
Model multi_gpu_model(const Model& model, Communicator& comm, KernelBackend& backend,
                      const MultiGpuOptions& options = {});
// ... and several devices for each rank: weights lie on the first, and device_scope numbers them.
Model multi_gpu_model(const Model& model, Communicator& comm, std::span<KernelBackend* const> backends,
                      const MultiGpuOptions& options = {});

}  // namespace rondo
