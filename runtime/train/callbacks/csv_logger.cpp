#include "runtime/train/callbacks/csv_logger.h"

#include <fmt/core.h>

#include <algorithm>

namespace rondo {

namespace {

// Quoted where the text would break the line's fields (RFC 4180).
std::string field(const std::string& text, char separator) {
  if (text.find_first_of(std::string("\"\r\n") + separator) == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

CsvLogger::CsvLogger(const CsvLoggerOptions& options)
    : separator_(options.separator), file_(options.path, options.append) {}

void CsvLogger::on_train_begin(const RunReport& report) {
  scales_losses_ = report.scales_losses;
  file_.begin();
}

Decision CsvLogger::on_epoch_end(const EpochReport& report) {
  Logs logs = report.logs;
  const auto add = [&logs](const char* name, double value) {
    if (std::none_of(logs.begin(), logs.end(), [&](const auto& entry) { return entry.first == name; })) {
      logs.emplace_back(name, value);
    }
  };
  if (scales_losses_) {
    add("loss_scale", report.loss_scale);
    add("skipped_steps", static_cast<double>(report.skipped_steps));
  }
  if (columns_.empty()) {
    for (const auto& [name, value] : logs) columns_.push_back(name);
    std::sort(columns_.begin(), columns_.end());
    if (file_.empty()) {
      std::string header = "epoch";
      for (const std::string& column : columns_) header += separator_ + field(column, separator_);
      file_.write(header + "\r\n");
    }
  }
  std::string line = fmt::format("{}", report.epoch);
  for (const std::string& column : columns_) {
    const auto found =
        std::find_if(logs.begin(), logs.end(), [&](const auto& entry) { return entry.first == column; });
    line += found == logs.end() ? fmt::format("{}NA", separator_)
                                : fmt::format("{}{}", separator_, found->second);
  }
  file_.write(line + "\r\n");
  file_.flush();
  return Decision::kContinue;
}

}  // namespace rondo
