#include "runtime/train/callbacks/progress.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/base/error.h"

namespace rondo {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Plays a run of one epoch at a steady pace, and gives what was printed.
class Screen {
 public:
  std::string play(ProgressMode mode, int64_t steps, double seconds_per_step, int width = 0) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
    Progress progress({.mode = mode, .out = file.get(), .width = width});
    RunReport run;
    run.epochs = 3;
    run.steps_per_epoch = steps;
    run.metric_names = {"accuracy"};
    progress.on_train_begin(run);
    progress.on_epoch_begin(1);
    const std::vector<double> metrics{0.875};
    for (int64_t i = 0; i < steps; ++i) {
      StepReport step;
      step.epoch = 1;
      step.step = i;
      step.epoch_loss = 0.25;
      step.epoch_metrics = metrics;
      step.epoch_samples = 64 * (i + 1);
      step.epoch_seconds = seconds_per_step * static_cast<double>(i + 1);
      EXPECT_EQ(progress.on_step_end(step), Decision::kContinue);
    }
    EpochReport epoch;
    epoch.epoch = 1;
    epoch.samples = 64 * steps;
    epoch.seconds = seconds_per_step * static_cast<double>(steps);
    epoch.logs = {{"loss", 0.25}, {"accuracy", 0.875}, {"val_loss", 0.00001}, {"val_accuracy", 0.5}};
    progress.on_epoch_end(epoch);
    progress.on_train_end(end);
    return read(file.get());
  }

  EndReport end;

 private:
  static std::string read(std::FILE* file) {
    std::string text;
    std::rewind(file);
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
    return text;
  }
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

TEST(Progress, LinesComeEveryTenthOfAnEpoch) {
  const auto lines = split(Screen().play(ProgressMode::kLines, 200, 0.2), '\n');  // 40 s
  ASSERT_EQ(lines.size(), 11u);  // 9 tenths, the epoch, the end
  EXPECT_EQ(lines[0], "epoch 2/3  step 20/200  loss 0.2500  accuracy 0.8750  320 samples/s  ETA 36 s");
  EXPECT_EQ(lines[9],
            "epoch 2/3  loss 0.2500  accuracy 0.8750  val_loss 1.000e-05  val_accuracy 0.5000  320 samples/s "
            " 40 s");
  EXPECT_EQ(lines[10], "");
}

TEST(Progress, LinesNeverFlood) {
  // An epoch of 0.2 s is one line; tenths of 0.3 s are shown once a second.
  EXPECT_EQ(split(Screen().play(ProgressMode::kLines, 200, 0.001), '\n').size(), 2u);
  const auto fast = split(Screen().play(ProgressMode::kLines, 300, 0.01), '\n');
  EXPECT_LE(fast.size(), 5u);
  EXPECT_GE(fast.size(), 3u);
}

TEST(Progress, LinesShowLifeInLongEpochs) {
  const auto lines = split(Screen().play(ProgressMode::kLines, 100, 10.0), '\n');
  EXPECT_EQ(lines.size(), 101u);  // every ten seconds
  EXPECT_THAT(lines[0], HasSubstr("6.4 samples/s  ETA 16:30"));
}

TEST(Progress, TheBarIsRedrawnTenTimesASecondAndFitsTheTerminal) {
  for (const int width : {120, 80, 60, 30}) {
    const std::string text = Screen().play(ProgressMode::kBar, 2000, 0.001, width);  // 2 s
    const auto drawn = split(text.substr(0, text.find('\n')), '\r');
    EXPECT_LE(drawn.size(), 25u);
    EXPECT_GE(drawn.size(), 18u);
    for (size_t i = 0; i + 1 < drawn.size(); ++i) {
      EXPECT_LT(drawn[i].substr(0, drawn[i].find('\x1b')).size(), static_cast<size_t>(width)) << drawn[i];
    }
  }
  const auto drawn = split(Screen().play(ProgressMode::kBar, 2000, 0.001, 120), '\r');
  EXPECT_THAT(drawn[1], StartsWith("epoch 2/3 [....."));
  EXPECT_THAT(drawn, Contains(HasSubstr("[===============...............] 1007/2000  loss 0.2500")));
  EXPECT_THAT(drawn.back(), HasSubstr("epoch 2/3  loss 0.2500"));
  // Where there is no room for a bar the numbers stay.
  EXPECT_THAT(split(Screen().play(ProgressMode::kBar, 2000, 0.001, 60), '\r')[1], Not(HasSubstr("[...")));
}

TEST(Progress, NoneIsSilentAndAutoMeansLinesForFiles) {
  EXPECT_EQ(Screen().play(ProgressMode::kNone, 100, 1.0), "");
  EXPECT_EQ(Screen().play(ProgressMode::kAuto, 100, 0.1), Screen().play(ProgressMode::kLines, 100, 0.1));
}

TEST(Progress, TellsWhoStoppedTheRun) {
  Screen screen;
  screen.end.stopped_by = "EarlyStopping";
  screen.end.stop_reason = "loss did not improve";
  EXPECT_THAT(screen.play(ProgressMode::kLines, 10, 0.001),
              HasSubstr("\nstopped by EarlyStopping: loss did not improve\n"));
}

TEST(Progress, ModesByName) {
  EXPECT_EQ(parse_progress_mode("auto"), ProgressMode::kAuto);
  EXPECT_EQ(parse_progress_mode("bar"), ProgressMode::kBar);
  EXPECT_EQ(parse_progress_mode("lines"), ProgressMode::kLines);
  EXPECT_EQ(parse_progress_mode("none"), ProgressMode::kNone);
  EXPECT_THAT([] { parse_progress_mode("dots"); },
              ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("auto, bar, lines, none")));
}

}  // namespace
}  // namespace rondo
