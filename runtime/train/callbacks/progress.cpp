#include "runtime/train/callbacks/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace rondo {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kShortestGap = 1.0;  // between lines
constexpr double kLongestGap = 10.0;

// "4.2 s", "3:07", "1:02:33".
std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string samples_per_second(int64_t samples, double seconds) {
  if (seconds <= 0.0) return {};
  const double rate = static_cast<double>(samples) / seconds;
  return rate < 100.0 ? fmt::format("  {:.1f} samples/s", rate) : fmt::format("  {:.0f} samples/s", rate);
}

std::string value(const std::string& name, double number) {
  const double size = std::abs(number);
  const bool plain = !std::isfinite(number) || number == 0.0 || (size >= 1e-3 && size < 1e5);
  return plain ? fmt::format("  {} {:.4f}", name, number) : fmt::format("  {} {:.3e}", name, number);
}

}  // namespace

ProgressMode parse_progress_mode(const std::string& text) {
  if (text == "auto") return ProgressMode::kAuto;
  if (text == "bar") return ProgressMode::kBar;
  if (text == "lines") return ProgressMode::kLines;
  if (text == "none") return ProgressMode::kNone;
  raise<InvalidArgument>("'{}' is no way to show progress; there are auto, bar, lines, none", text);
}

Progress::Progress(const ProgressOptions& options) : options_(options) {
  if (options_.mode == ProgressMode::kAuto) {
    options_.mode = isatty(fileno(options_.out)) != 0 ? ProgressMode::kBar : ProgressMode::kLines;
  }
}

void Progress::on_train_begin(const RunReport& report) {
  run_ = report;
}

void Progress::on_epoch_begin(int64_t) {
  shown_at_ = 0.0;
  shown_tenth_ = 0;
}

bool Progress::due(const StepReport& report) const {
  const double gap = report.epoch_seconds - shown_at_;
  const bool last = report.step + 1 == run_.steps_per_epoch;
  if (options_.mode == ProgressMode::kBar) return last || !drawn_ || gap >= kRedrawSeconds;
  if (last) return false;  // the epoch's line comes next
  const int64_t tenth = (report.step + 1) * 10 / run_.steps_per_epoch;
  return (tenth > shown_tenth_ && gap >= kShortestGap) || gap >= kLongestGap;
}

Decision Progress::on_step_end(const StepReport& report) {
  if (options_.mode == ProgressMode::kNone || !due(report)) return Decision::kContinue;
  shown_at_ = report.epoch_seconds;
  shown_tenth_ = (report.step + 1) * 10 / run_.steps_per_epoch;
  if (options_.mode == ProgressMode::kBar) {
    draw_bar(report);
  } else {
    put(fmt::format("epoch {}/{}  step {}/{}{}\n", report.epoch + 1, run_.epochs, report.step + 1,
                    run_.steps_per_epoch, status(report)));
  }
  return Decision::kContinue;
}

std::string Progress::status(const StepReport& report) const {
  std::string text = value("loss", report.epoch_loss);
  for (size_t i = 0; i < report.epoch_metrics.size() && i < run_.metric_names.size(); ++i) {
    text += value(run_.metric_names[i], report.epoch_metrics[i]);
  }
  text += samples_per_second(report.epoch_samples, report.epoch_seconds);
  const auto done = static_cast<double>(report.step + 1);
  const auto left = static_cast<double>(run_.steps_per_epoch - report.step - 1);
  return text + "  ETA " + duration(report.epoch_seconds / done * left);
}

// The bar takes the columns that the numbers leave, up to 30, and goes when they leave too few.
void Progress::draw_bar(const StepReport& report) {
  constexpr int kWidest = 30;
  constexpr int kNarrowest = 5;
  const std::string steps = std::to_string(run_.steps_per_epoch);
  const std::string head = fmt::format("epoch {}/{} ", report.epoch + 1, run_.epochs);
  const std::string tail = fmt::format(" {:>{}}/{}{}", report.step + 1, steps.size(), steps, status(report));
  const int room = columns() - 1;  // a full line would wrap on some terminals
  const int bar = std::min(kWidest, room - static_cast<int>(head.size() + tail.size()) - 2);
  std::string line = head;
  if (bar >= kNarrowest) {
    const auto filled = static_cast<size_t>(bar * (report.step + 1) / run_.steps_per_epoch);
    line += "[" + std::string(filled, '=') + std::string(static_cast<size_t>(bar) - filled, '.') + "]";
  }
  line = (line + tail).substr(0, static_cast<size_t>(std::max(room, 1)));
  put("\r" + line + "\x1b[K");  // erases what a longer line left behind
  drawn_ = true;
}

int Progress::columns() const {
  if (options_.width > 0) return options_.width;
  winsize size{};
  const bool known = ioctl(fileno(options_.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

Decision Progress::on_epoch_end(const EpochReport& report) {
  if (options_.mode == ProgressMode::kNone) return Decision::kContinue;
  std::string line = fmt::format("epoch {}/{}", report.epoch + 1, run_.epochs);
  for (const auto& [name, number] : report.logs) line += value(name, number);
  line += samples_per_second(report.samples, report.seconds) + "  " + duration(report.seconds);
  put((drawn_ ? "\r\x1b[K" : "") + line + "\n");  // takes the bar's place
  drawn_ = false;
  return Decision::kContinue;
}

void Progress::on_train_end(const EndReport& report) {
  if (options_.mode == ProgressMode::kNone || report.stopped_by.empty()) return;
  put(fmt::format("stopped by {}{}{}\n", report.stopped_by, report.stop_reason.empty() ? "" : ": ",
                  report.stop_reason));
}

// A terminal that went away is no reason to end a training run.
void Progress::put(const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), options_.out);
  std::fflush(options_.out);
}

}  // namespace rondo
