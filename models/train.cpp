// The program: trains a model of the zoo, alone or over all ranks of a launcher.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/files.h"
#include "models/graph/precision.h"
#include "models/model.h"
#include "models/program/data.h"
#include "models/program/model_files.h"
#include "models/program/options.h"
#include "models/program/terminal.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/cost_model.h"
#include "runtime/comm/mpi/launcher.h"
#include "runtime/data/source.h"
#include "runtime/data/synthetic.h"
#include "runtime/launch/collectives_file.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/openmp_wait.h"
#include "runtime/launch/run.h"
#include "runtime/launch/stop_on_signal.h"
#include "runtime/launch/version.h"
#include "runtime/launch/world.h"
#include "runtime/train/callbacks/csv_logger.h"
#include "runtime/train/callbacks/json_lines_logger.h"
#include "runtime/train/callbacks/model_checkpoint.h"
#include "runtime/train/callbacks/progress.h"
#include "runtime/train/callbacks/terminate_on_nan.h"

namespace {

using namespace rondo;

// The callbacks of a run. Those that decide are on every rank, those that write on the first.
class Callbacks {
 public:
  // Throws FileError for an output that cannot be written; what the files hold is kept until training begins.
  Callbacks(const ProgramOptions& options, const World& world) {
    add<StopOnSignal>(world);
    add<TerminateOnNaN>();
    if (world.rank() != 0) return;
    if (!options.log_jsonl.empty()) add<JsonLinesLogger>(options.log_jsonl);
    if (!options.log_csv.empty()) add<CsvLogger>(CsvLoggerOptions{.path = options.log_csv});
    ProgressMode mode = options.progress;
    if (mode == ProgressMode::kAuto && !output_is_watched(launched_by())) mode = ProgressMode::kLines;
    add<Progress>(ProgressOptions{.mode = mode});
  }

  std::vector<Callback*> pointers() const {
    std::vector<Callback*> pointers;
    for (const auto& callback : owned_) pointers.push_back(callback.get());
    return pointers;
  }

 private:
  template <class C, class... Args>
  void add(Args&&... args) {
    owned_.push_back(std::make_unique<C>(std::forward<Args>(args)...));
  }

  std::vector<std::unique_ptr<Callback>> owned_;
};

// What the run took: a line like
//   3 epochs, 180000 samples in 201.5 s (validation included): compute 95 %, communication 3 %, input 1 %;
//   at most 310 MiB a rank, 2210 MiB on its device
void print_end(const EndReport& end) {
  double total = 0.0;
  Usage sum;
  for (const Usage& rank : end.ranks) {
    total += rank.seconds;
    sum.compute_seconds += rank.compute_seconds;
    sum.communication_seconds += rank.communication_seconds;
    sum.input_seconds += rank.input_seconds;
    sum.peak_memory_bytes = std::max(sum.peak_memory_bytes, rank.peak_memory_bytes);
    sum.peak_device_bytes = std::max(sum.peak_device_bytes, rank.peak_device_bytes);
  }
  const auto percent = [total](double seconds) { return total > 0.0 ? 100.0 * seconds / total : 0.0; };
  const std::string device =
      sum.peak_device_bytes > 0 ? fmt::format(", {} MiB on its device", sum.peak_device_bytes >> 20) : "";
  fmt::print(
      "{} {}, {} samples in {:.1f} s (validation included): compute {:.0f} %, communication {:.0f} %, input "
      "{:.0f} %; at most {} MiB a rank{}\n",
      end.epochs_done, end.epochs_done == 1 ? "epoch" : "epochs", end.samples, end.seconds,
      percent(sum.compute_seconds), percent(sum.communication_seconds), percent(sum.input_seconds),
      sum.peak_memory_bytes >> 20, device);
}

// Measures what collectives cost, instead of training.
int tune_collectives(World& world, const std::string& path) {
  world.all_or_none("setting up", [&] {
    if (world.size() > 1 && world.rank() == 0 && !std::ofstream(path, std::ios::app))
      raise<FileError>("{}: cannot be written; give a path in a folder that exists", path);
  });
  const CostModel costs = world.measure_collectives();
  world.all_or_none("writing what was measured", [&] {
    if (world.rank() != 0) return;
    const Topology& topology = world.comm().topology();
    write_collectives_file(path, costs,
                           fmt::format("{} ranks on {} hosts ({}, ...), {}", world.size(), topology.hosts(),
                                       topology.host_names.front(), world.comm().name()));
    for (const auto& [name, value] : costs.values()) fmt::print("{:24}{:12.2f}\n", name, value);
    fmt::print("written to {}; train with --collectives {}\n", path, path);
  });
  return 0;
}

int train(World& world, int argc, char** argv) {
  ProgramOptions options;
  world.all_or_none("reading the options", [&] { options = parse_options(argc, argv); });
  world.agree_on(options.facts);
  if (!options.tune_collectives.empty()) return tune_collectives(world, options.tune_collectives);

  ProgramData data;
  std::optional<Callbacks> callbacks;
  world.all_or_none("setting up", [&] {
    world.bind(options.binding);
    check_precision(world.backend(), options.precision);
    callbacks.emplace(options, world);
    const auto [input_shape, classes] = zoo::preset(options.model);
    data = open_data(options.data, options.validation_split, options.seed,
                     {.input_shape = input_shape, .classes = classes});
    if (world.rank() == 0) check_outputs(options.files);
  });
  world.device_comm();  // so that the banner names it
  if (world.rank() == 0 && options.progress != ProgressMode::kNone) {
    if (!data.note.empty()) fmt::print("{}\n", data.note);
    fmt::print("{}", world.banner());
    std::fflush(stdout);
  }

  std::optional<Model> made;
  world.all_or_none("making the model",
                    [&] { made = make_model(options, data.train->input_shape(), data.train->classes()); });
  Model& model = *made;
  Model parallel = multi_gpu_model(model, world);
  const OptimizerState state = loaded_state(model, options);
  parallel.compile(compile_options(model, options));
  if (state.iterations > 0) parallel.set_optimizer_state(state);
  if (!trains(options.files)) return apply_model(parallel, *data.validation, options, world);
  std::vector<Callback*> all_callbacks = callbacks->pointers();
  std::optional<ModelCheckpoint> checkpoint;
  if (!options.files.checkpoint.empty()) {
    all_callbacks.push_back(&checkpoint.emplace(
        ModelCheckpointOptions{.path = options.files.checkpoint, .save = [&](const std::string& path, bool) {
                                 write_model_file(parallel, path, save_options(options.files));
                               }}));
  }
  const History history = parallel.fit(*data.train, {.batch_size = options.batch_size,
                                                     .epochs = options.epochs,
                                                     .steps_per_epoch = options.steps_per_epoch,
                                                     .seed = options.seed,
                                                     .validation_data = data.validation.get(),
                                                     .replay_steps = options.replay_steps,
                                                     .callbacks = all_callbacks});
  if (world.rank() == 0 && options.progress != ProgressMode::kNone) print_end(history.end);
  world.all_or_none("training", [&] {
    if (history.end.stopped_by.find("TerminateOnNaN") == std::string::npos) return;
    throw NumericError(history.end.stop_reason);
  });
  // The parallel model has the template's layers and weights, and the optimizer.
  const SaveOptions how = save_options(options.files);
  if (!options.files.save.empty()) parallel.save(options.files.save, how);
  if (!options.files.save_weights.empty()) parallel.save_weights(options.files.save_weights, how);
  return 0;
}

// What is asked for instead of training needs no other rank: the first one answers. Nothing: train.
std::optional<int> answer(ProgramOptions& options, int argc, char** argv) {
  try {
    options = parse_options(argc, argv);
  } catch (const std::exception&) {
    return std::nullopt;  // told by train(), once for all ranks
  }
  if (options.action == Action::kTrain) return std::nullopt;
  if (launched_by().rank != 0) return 0;
  switch (options.action) {
    case Action::kHelp:
      fmt::print("{}", help_text());
      break;
    case Action::kVersion:
      fmt::print("Rondo {}\n", version());
      break;
    case Action::kCheckBuild:
      fmt::print("Rondo {}\n{}", version(), parts_of_this_build());
      break;
    case Action::kSummary: {
      if (!options.files.load.empty()) {
        fmt::print("{}", load_model(options.files.load, {.compile = false}).summary());
        break;
      }
      const auto [input_shape, classes] = zoo::preset(options.model);
      fmt::print("{}", make_model(options, input_shape, classes).summary());
      break;
    }
    case Action::kTrain:
      break;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ProgramOptions options;
  try {
    if (const std::optional<int> code = answer(options, argc, argv)) return *code;
    start_local_ranks(options.binding, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: error: {}\n", program_name(argv[0]), error.what());
    return 1;
  }
  restart_with_short_openmp_waits(argv, options.binding.threads);
  return run(argc, argv, {.collectives_file = options.collectives},
             [&](World& world) { return train(world, argc, argv); });
}
