#include "runtime/train/callbacks/model_checkpoint.h"

#include <fmt/args.h>
#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"

namespace rondo {

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options)
    : options_(std::move(options)),
      monitor_(name(), options_.monitor, options_.mode,
               mentions_accuracy(options_.monitor) || options_.monitor.starts_with("fmeasure"), 0.0),
      best_(options_.initial_value_threshold.value_or(monitor_.worst())) {
  require(!options_.path.empty(), "ModelCheckpoint: no path was given");
  require(static_cast<bool>(options_.save), "ModelCheckpoint: no function to save with was given");
  require(options_.save_every_steps >= 0, "ModelCheckpoint: save_every_steps is {}; it must be 0 or more",
          options_.save_every_steps);
}

void ModelCheckpoint::on_train_begin(const RunReport& report) {
  run_ = report;
  steps_ = 0;
  if (options_.save_best_only) monitor_.check(report);
  // Try the path with the values that there will be.
  Logs logs{{"loss", 0.0}};
  for (const std::string& metric : report.metric_names) logs.emplace_back(metric, 0.0);
  const size_t training = logs.size();
  const bool by_epoch = options_.save_every_steps == 0;
  for (size_t i = 0; by_epoch && report.validates && i < training; ++i) {
    logs.emplace_back("val_" + logs[i].first, 0.0);
  }
  if (by_epoch) logs.emplace_back("lr", 0.0);  // where another callback adds it
  path_of(logs, 1);
}

Decision ModelCheckpoint::on_step_end(const StepReport& report) {
  if (options_.save_every_steps == 0 || ++steps_ < options_.save_every_steps) return Decision::kContinue;
  steps_ = 0;
  Logs logs{{"loss", report.epoch_loss}};
  for (size_t i = 0; i < report.epoch_metrics.size(); ++i) {
    logs.emplace_back(run_.metric_names[i], report.epoch_metrics[i]);
  }
  consider(logs, report.step + 1);
  return Decision::kContinue;
}

Decision ModelCheckpoint::on_epoch_end(const EpochReport& report) {
  epoch_ = report.epoch;
  if (options_.save_every_steps == 0) consider(report.logs, 0);
  return Decision::kContinue;
}

void ModelCheckpoint::consider(const Logs& logs, int64_t batch) {
  if (options_.save_best_only) {
    const auto value = monitor_.value(logs);
    if (!value || !monitor_.improves(*value, best_)) return;
    best_ = *value;
  }
  const std::string path = path_of(logs, batch);
  control_->merge_statistics();
  options_.save(path, options_.save_weights_only);
}

std::string ModelCheckpoint::path_of(const Logs& logs, int64_t batch) const {
  fmt::dynamic_format_arg_store<fmt::format_context> values;
  values.push_back(fmt::arg("epoch", epoch_ + 1));
  std::string known = "epoch";
  if (options_.save_every_steps > 0) {
    values.push_back(fmt::arg("batch", batch));
    known += ", batch";
  }
  for (const auto& [name, value] : logs) {
    values.push_back(fmt::arg(name.c_str(), value));
    known += ", " + name;
  }
  try {
    return fmt::vformat(options_.path, values);
  } catch (const fmt::format_error& error) {
    raise<InvalidArgument>(
        "ModelCheckpoint: the path \"{}\" cannot be formatted ({}); its fields can be {}, as in "
        "{{epoch:02d}}",
        options_.path, error.what(), known);
  }
}

}  // namespace rondo
