#include "bench/step_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace rondo::bench {
namespace {

std::vector<double> column(const Readings& readings, Phase phase) {
  std::vector<double> values;
  values.reserve(readings.size());
  for (const auto& step : readings) values.push_back(step[phase] * 1e3);
  return values;
}

double percentile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
}

double images_per_second(int64_t batch, double ms) {
  return static_cast<double>(batch) / ms * 1e3;
}

std::string row_name(const std::string& model, int phase) {
  return fmt::format("{}/{}", model, kPhaseNames[static_cast<size_t>(phase)]);
}

}  // namespace

double median(std::vector<double> values) {
  require(!values.empty(), "a median needs at least one value");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

double median_ms(const Readings& readings, Phase phase) {
  return median(column(readings, phase));
}

void print_readings(const std::string& model, int64_t batch, const Readings& readings) {
  fmt::print("{:<16}{:>12}{:>12}{:>10}{:>10}\n", "phase", "images/s", "ms median", "ms p10", "ms p90");
  for (int phase = 0; phase < kPhases; ++phase) {
    const std::vector<double> ms = column(readings, static_cast<Phase>(phase));
    fmt::print("{:<16}{:>12.1f}{:>12.4f}{:>10.4f}{:>10.4f}\n", row_name(model, phase),
               images_per_second(batch, median(ms)), median(ms), percentile(ms, 0.1), percentile(ms, 0.9));
  }
}

void write_json(const std::string& path, const std::string& model, int64_t batch, const Readings& readings) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (int phase = 0; phase < kPhases; ++phase) {
    const double ms = median_ms(readings, static_cast<Phase>(phase));
    rows.push_back(
        {{"name", row_name(model, phase)}, {"images_per_s", images_per_second(batch, ms)}, {"ms", ms}});
  }
  std::ofstream file(path);
  file << rows.dump(1) << '\n';
  file.close();
  if (!file) raise<FileError>("{}: cannot be written; give a path in a folder that exists", path);
}

void print_profile(const std::deque<StepProfile>& profiles, const Readings& readings) {
  const double update = median_ms(readings, kUpdate);
  double total = update;
  for (const StepProfile& step : profiles) total += median(step.seconds) * 1e3;
  const auto line = [total](std::string_view phase, std::string_view name, double ms, std::string_view how) {
    fmt::print("{:<9} {:<36} {:>9.4f} {:>6.1f} %  {}\n", phase, name, ms, 100.0 * ms / total, how);
  };
  fmt::print("\n{:<9} {:<36} {:>9} {:>8}  {}\n", "phase", "step", "ms median", "share", "implementation");
  for (const StepProfile& step : profiles) {
    line(kPhaseNames[step.phase], step.name, median(step.seconds) * 1e3, step.implementation);
  }
  line("update", "optimizer", update, "all buckets");
  fmt::print("{:<9} {:<36} {:>9.4f}  (the whole step: {:.4f})\n", "", "sum", total,
             median_ms(readings, kStep));
}

}  // namespace rondo::bench
