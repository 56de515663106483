#include "runtime/train/callbacks/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "runtime/base/error.h"

namespace rondo {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kShortestGap = 1.0;  // between lines
constexpr double kLongestGap = 10.0;

using Text = fmt::memory_buffer;

template <class... Args>
void append(Text& text, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
}

// "4.2 s", "3:07", "1:02:33".
void append_duration(Text& text, double seconds) {
  if (!std::isfinite(seconds)) return append(text, "?");
  if (seconds < 9.95) return append(text, "{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return append(text, "{} s", whole);
  if (whole < 3600) return append(text, "{}:{:02}", whole / 60, whole % 60);
  append(text, "{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

void append_rate(Text& text, int64_t samples, double seconds) {
  if (seconds <= 0.0) return;
  const double rate = static_cast<double>(samples) / seconds;
  append(text, "  {:.{}f} samples/s", rate, rate < 100.0 ? 1 : 0);
}

void append_value(Text& text, const std::string& name, double number) {
  const double size = std::abs(number);
  const bool plain = !std::isfinite(number) || number == 0.0 || (size >= 1e-3 && size < 1e5);
  if (plain) return append(text, "  {} {:.4f}", name, number);
  append(text, "  {} {:.3e}", name, number);
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
  text_.clear();
  if (options_.mode == ProgressMode::kBar) {
    draw_bar(report);
  } else {
    draw_line(report);
  }
  put();
  return Decision::kContinue;
}

void Progress::draw_line(const StepReport& report) {
  append(text_, "epoch {}/{}  step {}/{}", report.epoch + 1, run_.epochs, report.step + 1,
         run_.steps_per_epoch);
  part_.clear();
  append_status(report);
  text_.append(part_);
  append(text_, "\n");
}

void Progress::append_status(const StepReport& report) {
  append_value(part_, "loss", report.epoch_loss);
  for (size_t i = 0; i < report.epoch_metrics.size() && i < run_.metric_names.size(); ++i) {
    append_value(part_, run_.metric_names[i], report.epoch_metrics[i]);
  }
  append_rate(part_, report.epoch_samples, report.epoch_seconds);
  const auto done = static_cast<double>(report.step + 1);
  const auto left = static_cast<double>(run_.steps_per_epoch - report.step - 1);
  append(part_, "  ETA ");
  append_duration(part_, report.epoch_seconds / done * left);
}

// The bar takes the columns that the numbers leave, up to 30, and goes when they leave too few.
void Progress::draw_bar(const StepReport& report) {
  constexpr int kWidest = 30;
  constexpr int kNarrowest = 5;
  append(text_, "\repoch {}/{} ", report.epoch + 1, run_.epochs);
  part_.clear();
  append(part_, " {:>{}}/{}", report.step + 1, fmt::formatted_size("{}", run_.steps_per_epoch),
         run_.steps_per_epoch);
  append_status(report);

  const int room = columns() - 1;                       // a full line would wrap on some terminals
  const int head = static_cast<int>(text_.size()) - 1;  // without the carriage return
  const int bar = std::min(kWidest, room - head - static_cast<int>(part_.size()) - 2);
  if (bar >= kNarrowest) {
    const auto filled = static_cast<int>(bar * (report.step + 1) / run_.steps_per_epoch);
    append(text_, "[{:=<{}}{:.<{}}]", "", filled, "", bar - filled);
  }
  text_.append(part_);
  text_.resize(std::min(text_.size(), static_cast<size_t>(std::max(room, 1)) + 1));
  append(text_, "\x1b[K");  // erases what a longer line left behind
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
  text_.clear();
  if (drawn_) append(text_, "\r\x1b[K");  // the line takes the bar's place
  drawn_ = false;
  append(text_, "epoch {}/{}", report.epoch + 1, run_.epochs);
  for (const auto& [name, number] : report.logs) append_value(text_, name, number);
  append_rate(text_, report.samples, report.seconds);
  append(text_, "  ");
  append_duration(text_, report.seconds);
  append(text_, "\n");
  put();
  return Decision::kContinue;
}

void Progress::on_train_end(const EndReport& report) {
  if (options_.mode == ProgressMode::kNone || report.stopped_by.empty()) return;
  text_.clear();
  append(text_, "stopped by {}{}{}\n", report.stopped_by, report.stop_reason.empty() ? "" : ": ",
         report.stop_reason);
  put();
}

// A terminal that went away is no reason to end a training run.
void Progress::put() {
  std::fwrite(text_.data(), 1, text_.size(), options_.out);
  std::fflush(options_.out);
}

}  // namespace rondo
