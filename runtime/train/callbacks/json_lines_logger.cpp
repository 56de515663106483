#include "runtime/train/callbacks/json_lines_logger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace rondo {

namespace {

using Json = nlohmann::ordered_json;  // dumps numbers that are not finite as null

double rate(int64_t samples, double seconds) {
  return seconds > 0.0 ? static_cast<double>(samples) / seconds : std::nan("");
}

using Line = fmt::basic_memory_buffer<char, 512>;

// Steps are written by hand: a JSON object would allocate in every one of them.
void append_number(Line& line, const char* name, double value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(line), ",\"{}\":{}", name, value);
  } else {
    fmt::format_to(std::back_inserter(line), ",\"{}\":null", name);
  }
}

}  // namespace

JsonLinesLogger::JsonLinesLogger(const std::string& path) : file_(path, false) {}

void JsonLinesLogger::on_train_begin(const RunReport& report) {
  scales_losses_ = report.scales_losses;
  skipped_steps_ = 0;
  file_.begin();
}

void JsonLinesLogger::on_epoch_begin(int64_t) {
  step_began_ = 0.0;
}

Decision JsonLinesLogger::on_step_end(const StepReport& report) {
  Line line;
  fmt::format_to(std::back_inserter(line), "{{\"event\":\"step\",\"epoch\":{},\"step\":{}", report.epoch,
                 report.step);
  append_number(line, "loss", report.loss);
  fmt::format_to(std::back_inserter(line), ",\"samples\":{}", report.samples);
  append_number(line, "samples_per_s", rate(report.samples, report.epoch_seconds - step_began_));
  step_began_ = report.epoch_seconds;
  if (scales_losses_) {
    append_number(line, "loss_scale", report.loss_scale);
    fmt::format_to(std::back_inserter(line), ",\"skipped\":{}", report.skipped);
    skipped_steps_ += report.skipped ? 1 : 0;
  }
  fmt::format_to(std::back_inserter(line), "}}\n");
  file_.write({line.data(), line.size()});
  return Decision::kContinue;
}

Decision JsonLinesLogger::on_epoch_end(const EpochReport& report) {
  Json row{{"event", "epoch"}, {"epoch", report.epoch}};
  for (const auto& [name, value] : report.logs) row[name] = value;
  row["samples"] = report.samples;
  row["seconds"] = report.seconds;
  row["samples_per_s"] = rate(report.samples, report.seconds);
  if (scales_losses_) {
    row["loss_scale"] = report.loss_scale;
    row["skipped_steps"] = report.skipped_steps;
  }
  file_.write(row.dump() + "\n");
  file_.flush();
  return Decision::kContinue;
}

void JsonLinesLogger::on_train_end(const EndReport& report) {
  Json ranks = Json::array();
  Usage mean;
  for (const Usage& rank : report.ranks) {
    ranks.push_back({{"rank", ranks.size()},
                     {"seconds", rank.seconds},
                     {"compute_seconds", rank.compute_seconds},
                     {"communication_seconds", rank.communication_seconds},
                     {"input_seconds", rank.input_seconds},
                     {"peak_memory_bytes", rank.peak_memory_bytes}});
    const double share = 1.0 / static_cast<double>(report.ranks.size());
    mean.compute_seconds += share * rank.compute_seconds;
    mean.communication_seconds += share * rank.communication_seconds;
    mean.input_seconds += share * rank.input_seconds;
    mean.peak_memory_bytes = std::max(mean.peak_memory_bytes, rank.peak_memory_bytes);
  }
  Json row{{"event", "end"},
           {"epochs", report.epochs_done},
           {"steps", report.steps_done},
           {"samples", report.samples},
           {"seconds", report.seconds},
           {"samples_per_s", rate(report.samples, report.seconds)},
           {"stopped_by", report.stopped_by},
           {"stop_reason", report.stop_reason},
           {"peak_memory_bytes", mean.peak_memory_bytes},
           {"compute_seconds", mean.compute_seconds},
           {"communication_seconds", mean.communication_seconds},
           {"input_seconds", mean.input_seconds},
           {"ranks", ranks}};
  if (scales_losses_) row["skipped_steps"] = skipped_steps_;
  file_.write(row.dump() + "\n");
  file_.flush();
}

}  // namespace rondo
