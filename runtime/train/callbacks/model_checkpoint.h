#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "runtime/train/callbacks/monitor.h"

namespace rondo {

struct ModelCheckpointOptions {
  // Format fields in the way of Python name the epoch (from 1), the batch of the epoch (from 1, where batches
  // save) and the values of the logs: "weights.{epoch:02d}-{val_loss:.2f}.h5". An existing file is replaced.
  std::string path;
  std::string monitor = "val_loss";
  bool save_best_only = false;
  bool save_weights_only = false;
  MonitorMode mode = MonitorMode::kAuto;  // auto: larger is better when the name contains acc
  int64_t save_every_steps = 0;  // 0: after each epoch; else after so many steps, which epochs do not reset
  std::optional<double> initial_value_threshold = {};  // only what is better is saved as best
  // Writes the model; throws FileError when it cannot. Called on every rank at the same time, as Model::save
  // wants it: what writes by itself does so on one rank only.
  std::function<void(const std::string& path, bool weights_only)> save = {};
};

// Saves the model while it is trained: tf.keras' ModelCheckpoint. Runs on every rank, which decide alike. On
// devices that work by themselves, a file that a step saves may hold a few steps more.
//
//   const auto save = [&](const std::string& path, bool weights_only) {
//     weights_only ? model.save_weights(path) : model.save(path);
//   };
//   ModelCheckpoint checkpoint({.path = "best.h5", .save_best_only = true, .save = save});
class ModelCheckpoint : public Callback {
 public:
  // Throws InvalidArgument without path or save function and for negative numbers.
  explicit ModelCheckpoint(ModelCheckpointOptions options);

  std::string name() const override { return "ModelCheckpoint"; }
  void attach(TrainingControl& control) override { control_ = &control; }
  // Throws InvalidArgument, which lists the run's values, when a value that decides is not among them, and
  // for a path with an unknown or malformed field.
  void on_train_begin(const RunReport& report) override;
  void on_epoch_begin(int64_t epoch) override { epoch_ = epoch; }
  Decision on_step_end(const StepReport& report) override;
  Decision on_epoch_end(const EpochReport& report) override;

  double best() const { return best_; }

 private:
  // `batch` from 1; 0: after an epoch.
  void consider(const Logs& logs, int64_t batch);
  std::string path_of(const Logs& logs, int64_t batch) const;

  ModelCheckpointOptions options_;
  Monitor monitor_;
  TrainingControl* control_ = nullptr;
  RunReport run_;
  double best_;
  int64_t epoch_ = 0;
  int64_t steps_ = 0;  // since the last save
};

}  // namespace rondo
