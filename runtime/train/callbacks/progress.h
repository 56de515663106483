#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "runtime/train/callback.h"

namespace rondo {

enum class ProgressMode : uint8_t {
  kAuto,   // a bar on a terminal, else lines
  kBar,    // one line that is redrawn at most ten times a second
  kLines,  // a line about every tenth of an epoch, at most one a second, at least one every ten
  kNone
};

// "auto", "bar", "lines", "none". Throws InvalidArgument that lists them.
ProgressMode parse_progress_mode(const std::string& text);

struct ProgressOptions {
  ProgressMode mode = ProgressMode::kAuto;
  std::FILE* out = stdout;  // not owned
  int width = 0;            // of the bar's line in columns; 0: the terminal's
};

// Shows epoch, step, loss and metrics (means since the epoch began), samples per second over all ranks and
// the time left in the epoch; and one line with all values per epoch. For one rank only.
class Progress : public Callback {
 public:
  explicit Progress(const ProgressOptions& options = {});

  std::string name() const override { return "Progress"; }
  bool decides() const override { return false; }
  void on_train_begin(const RunReport& report) override;
  void on_epoch_begin(int64_t epoch) override;
  Decision on_step_end(const StepReport& report) override;
  Decision on_epoch_end(const EpochReport& report) override;
  void on_train_end(const EndReport& report) override;

 private:
  bool due(const StepReport& report) const;
  void draw_line(const StepReport& report);
  void draw_bar(const StepReport& report);
  void append_status(const StepReport& report);
  int columns() const;
  void put();

  ProgressOptions options_;
  RunReport run_;
  double shown_at_ = 0.0;    // seconds of the epoch
  int64_t shown_tenth_ = 0;  // of the epoch
  bool drawn_ = false;       // a bar stands on the current line
  // What is being written, and a part of it: kept, so that steps allocate nothing.
  fmt::memory_buffer text_;
  fmt::memory_buffer part_;
};

}  // namespace rondo
