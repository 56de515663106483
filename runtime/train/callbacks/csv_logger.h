#pragma once

#include <string>
#include <vector>

#include "runtime/train/callback.h"
#include "runtime/train/callbacks/output_file.h"

namespace rondo {

struct CsvLoggerOptions {
  std::string path;
  char separator = ',';
  bool append = false;  // keep what the file holds; the header is written only into an empty file
};

// One line per epoch, as Keras' CSVLogger: epoch (from 0), then the values in alphabetical order of their
// names, which the header gives; lines end with CR LF. Where losses are scaled (mixed precision), loss_scale
// and skipped_steps are two of them, unless the logs have values of these names. Flushed after every line.
// For one rank only.
class CsvLogger : public Callback {
 public:
  // Throws FileError when the file cannot be written. Its contents are kept until training begins.
  explicit CsvLogger(const CsvLoggerOptions& options);

  std::string name() const override { return "CsvLogger"; }
  bool decides() const override { return false; }
  void on_train_begin(const RunReport& report) override;
  Decision on_epoch_end(const EpochReport& report) override;

 private:
  char separator_;
  OutputFile file_;
  std::vector<std::string> columns_;  // fixed by the first epoch
  bool scales_losses_ = false;
};

}  // namespace rondo
