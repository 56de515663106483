// The command line of `train`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/precision.h"
#include "runtime/comm/agreement.h"
#include "runtime/launch/binding.h"
#include "runtime/optim/optimizer.h"
#include "runtime/train/callbacks/progress.h"

namespace rondo {

enum class Action : uint8_t { kTrain, kHelp, kVersion, kCheckBuild, kSummary };

// What is read from and written to files of models; empty: nothing.
struct ModelFileOptions {
  std::string load;  // the model comes from here
  std::string load_weights;
  std::string save;
  std::string save_weights;
  std::string checkpoint;   // after every epoch
  bool for_keras3 = false;  // which files are written; otherwise for tf.keras 2.x
  bool evaluate = false;    // instead of training
  std::string predict;      // a .npy file for the outputs, instead of training
};

struct ProgramOptions {
  Action action = Action::kTrain;

  std::string model;
  std::string data;
  double validation_split = 0.0;  // 0: validate on the data's own test samples

  int64_t epochs = 0;
  int64_t batch_size = 0;
  int64_t steps_per_epoch = 0;  // 0: one pass over the data
  uint64_t seed = 0;
  OptimizerConfig optimizer;
  // Whether the command line says so; otherwise what a file of --load says counts.
  bool optimizer_given = false;
  bool learning_rate_given = false;
  bool schedule_given = false;

  BindOptions binding;
  Precision precision = Precision::kF32;
  bool replay_steps = true;
  int64_t bucket_bytes = 0;
  std::string collectives;       // a file with what they cost; empty: none
  std::string tune_collectives;  // the file to write; empty: train

  ModelFileOptions files;

  std::string log_jsonl;  // empty: none
  std::string log_csv;
  ProgressMode progress = ProgressMode::kAuto;

  std::vector<Fact> facts;  // every option as text, for start-up agreement
};

// Throws InvalidArgument, which names the option, its value and what it takes, for anything that can be found
// wrong without looking at files: unknown options, left-over words, numbers out of range, unknown names.
ProgramOptions parse_options(int argc, const char* const* argv);

// What --help prints: the options in groups, with their defaults.
std::string help_text();

}  // namespace rondo
