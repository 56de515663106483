#pragma once

#include <string>

#include "runtime/train/callback.h"
#include "runtime/train/callbacks/output_file.h"

namespace rondo {

// One JSON object per line. Epochs and steps count from 0; numbers that are not finite are null; losses of
// steps are those of the step, of epochs the sample-weighted mean.
//
//   {"event":"step","epoch","step","loss","samples","samples_per_s"}
//   {"event":"epoch","epoch","loss",metrics...,"val_loss",...,"samples","seconds","samples_per_s"}
//   {"event":"end","epochs","steps","samples","seconds","samples_per_s","stopped_by","stop_reason",
//    "peak_memory_bytes","compute_seconds","communication_seconds","input_seconds",
//    "ranks":[{"rank","seconds","compute_seconds","communication_seconds","input_seconds",
//              "peak_memory_bytes"},...]}
//
// Where losses are scaled (mixed precision), steps also have "loss_scale" and "skipped" (true or false),
// epochs "loss_scale" and "skipped_steps", and the end "skipped_steps".
//
// The end's own peak memory is the largest of any rank, its seconds are means over ranks. Flushed after every
// epoch and at the end. For one rank only.
class JsonLinesLogger : public Callback {
 public:
  // Throws FileError when the file cannot be written. Its contents are kept until training begins.
  explicit JsonLinesLogger(const std::string& path);

  std::string name() const override { return "JsonLinesLogger"; }
  bool decides() const override { return false; }
  void on_train_begin(const RunReport& report) override;
  void on_epoch_begin(int64_t epoch) override;
  Decision on_step_end(const StepReport& report) override;
  Decision on_epoch_end(const EpochReport& report) override;
  void on_train_end(const EndReport& report) override;

 private:
  OutputFile file_;
  double step_began_ = 0.0;  // in seconds of the epoch
  bool scales_losses_ = false;
  int64_t skipped_steps_ = 0;
};

}  // namespace rondo
