#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/train/callbacks/csv_logger.h"
#include "runtime/train/callbacks/json_lines_logger.h"
#include "runtime/train/callbacks/terminate_on_nan.h"

namespace rondo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class Loggers : public ::testing::Test {
 protected:
  Loggers() { std::filesystem::create_directory(folder_); }
  ~Loggers() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string contents(const std::string& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void put(const std::string& file, const std::string& text) { std::ofstream(file) << text; }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("rondo_loggers_" + std::to_string(getpid()));
};

EpochReport epoch(int64_t index, Logs logs) {
  EpochReport report;
  report.epoch = index;
  report.samples = 100;
  report.seconds = 0.5;
  report.logs = std::move(logs);
  return report;
}

TEST_F(Loggers, CsvHasAHeaderAndALinePerEpoch) {
  CsvLogger csv({.path = path("log.csv")});
  csv.on_train_begin({});
  csv.on_epoch_end(epoch(0, {{"loss", 0.5}, {"accuracy", 0.25}, {"val_loss", 1e-7}}));
  // On disk after every epoch. The values come in alphabetical order.
  EXPECT_EQ(contents(path("log.csv")), "epoch,accuracy,loss,val_loss\r\n0,0.25,0.5,1e-07\r\n");
  csv.on_epoch_end(epoch(1, {{"loss", 1.0 / 3.0}, {"val_loss", kNaN}, {"unknown", 3.0}}));
  std::istringstream lines(contents(path("log.csv")));
  std::string line;
  for (int i = 0; i < 3; ++i) std::getline(lines, line);
  EXPECT_THAT(line, StartsWith("1,NA,0.333"));
  EXPECT_EQ(std::stod(line.substr(5)), 1.0 / 3.0);  // read back exactly
  EXPECT_THAT(line, HasSubstr(",nan\r"));
}

TEST_F(Loggers, CsvQuotesNamesAndTakesAnotherSeparator) {
  CsvLogger csv({.path = path("log.csv"), .separator = ';'});
  csv.on_train_begin({});
  csv.on_epoch_end(epoch(0, {{"a;b", 1.0}, {"say \"x\"", 2.5}}));
  EXPECT_EQ(contents(path("log.csv")), "epoch;\"a;b\";\"say \"\"x\"\"\"\r\n0;1;2.5\r\n");
}

// Mixed precision: what was skipped, and under which scale.
TEST_F(Loggers, WriteSkippedStepsAndTheLossScaleWhereThereIsOne) {
  CsvLogger csv({.path = path("log.csv")});
  JsonLinesLogger json(path("log.jsonl"));
  RunReport run;
  run.scales_losses = true;
  StepReport step;
  step.samples = 8;
  step.loss = 1.5;
  step.loss_scale = 512.0;
  step.skipped = true;
  EpochReport report = epoch(0, {{"loss", 0.5}});
  report.loss_scale = 256.0;
  report.skipped_steps = 1;
  for (Callback* callback : {static_cast<Callback*>(&csv), static_cast<Callback*>(&json)}) {
    callback->on_train_begin(run);
    callback->on_epoch_begin(0);
    callback->on_step_end(step);
    callback->on_epoch_end(report);
    callback->on_train_end({});
  }
  EXPECT_EQ(contents(path("log.csv")), "epoch,loss,loss_scale,skipped_steps\r\n0,0.5,256,1\r\n");
  std::istringstream lines(contents(path("log.jsonl")));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["loss_scale"], 512.0);
  EXPECT_EQ(rows[0]["skipped"], true);
  EXPECT_EQ(rows[1]["loss_scale"], 256.0);
  EXPECT_EQ(rows[1]["skipped_steps"], 1);
  EXPECT_EQ(rows[2]["skipped_steps"], 1);
}

TEST_F(Loggers, CsvAppends) {
  for (int run = 0; run < 2; ++run) {
    CsvLogger csv({.path = path("log.csv"), .append = true});
    csv.on_train_begin({});
    csv.on_epoch_end(epoch(run, {{"loss", 0.5}}));
  }
  EXPECT_EQ(contents(path("log.csv")), "epoch,loss\r\n0,0.5\r\n1,0.5\r\n");
}

TEST_F(Loggers, NothingIsOverwrittenUntilTrainingBegins) {
  put(path("log.csv"), "precious");
  put(path("log.jsonl"), "precious");
  CsvLogger csv({.path = path("log.csv")});
  JsonLinesLogger json(path("log.jsonl"));
  EXPECT_EQ(contents(path("log.csv")), "precious");
  EXPECT_EQ(contents(path("log.jsonl")), "precious");
  csv.on_train_begin({});
  json.on_train_begin({});
  EXPECT_EQ(contents(path("log.csv")), "");
  EXPECT_EQ(contents(path("log.jsonl")), "");
}

TEST_F(Loggers, APathThatCannotBeWrittenIsNamed) {
  const std::string bad = path("no/such/folder/log");
  EXPECT_THAT([&] { CsvLogger({.path = bad}); }, ThrowsMessage<FileError>(StartsWith(bad)));
  EXPECT_THAT([&] { JsonLinesLogger json(bad); }, ThrowsMessage<FileError>(HasSubstr("No such file")));
  EXPECT_THROW(JsonLinesLogger json(folder_.string()), FileError);
}

TEST_F(Loggers, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  CsvLogger csv({.path = "/dev/full"});
  csv.on_train_begin({});
  EXPECT_THAT(
      [&] {
        csv.on_epoch_end(epoch(0, {{"loss", 0.5}}));
      },
      ThrowsMessage<FileError>(HasSubstr("No space left")));
}

TEST_F(Loggers, JsonLinesHoldStepsEpochsAndTheEnd) {
  {
    JsonLinesLogger json(path("log.jsonl"));
    json.on_train_begin({});
    json.on_epoch_begin(0);
    StepReport step;
    step.epoch = 0;
    step.step = 0;
    step.samples = 64;
    step.loss = 2.25;
    step.epoch_seconds = 0.5;
    json.on_step_end(step);
    step.step = 1;
    step.samples = 16;
    step.loss = kNaN;
    step.epoch_seconds = 0.75;
    json.on_step_end(step);
    json.on_epoch_end(epoch(0, {{"loss", 2.0}, {"accuracy", 1.0}, {"val_loss", kNaN}, {"val_\"x\"", 0.5}}));
    EXPECT_THAT(contents(path("log.jsonl")), HasSubstr("epoch"));  // flushed
    EndReport end;
    end.epochs_done = 1;
    end.steps_done = 2;
    end.samples = 80;
    end.seconds = 2.0;
    end.stopped_by = "Limit (rank 1)";
    end.stop_reason = "time";
    end.ranks = {{.seconds = 2.0,
                  .compute_seconds = 1.0,
                  .communication_seconds = 0.25,
                  .input_seconds = 0.125,
                  .peak_memory_bytes = 1000},
                 {.seconds = 2.0,
                  .compute_seconds = 0.5,
                  .communication_seconds = 0.75,
                  .input_seconds = 0.125,
                  .peak_memory_bytes = 3000}};
    json.on_train_end(end);
  }
  std::vector<nlohmann::ordered_json> rows;
  std::istringstream lines(contents(path("log.jsonl")));
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::ordered_json::parse(line));
  ASSERT_EQ(rows.size(), 4u);

  EXPECT_EQ(rows[0],
            nlohmann::ordered_json::parse(
                R"({"event":"step","epoch":0,"step":0,"loss":2.25,"samples":64,"samples_per_s":128.0})"));
  EXPECT_EQ(rows[1]["loss"], nullptr);
  EXPECT_EQ(rows[1]["samples_per_s"], 64.0);  // of this step

  std::vector<std::string> keys;
  for (const auto& [key, value] : rows[2].items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("event", "epoch", "loss", "accuracy", "val_loss", "val_\"x\"", "samples",
                                "seconds", "samples_per_s"));
  EXPECT_EQ(rows[2]["accuracy"], 1.0);
  EXPECT_EQ(rows[2]["val_loss"], nullptr);
  EXPECT_EQ(rows[2]["samples_per_s"], 200.0);

  EXPECT_EQ(rows[3]["event"], "end");
  EXPECT_EQ(rows[3]["epochs"], 1);
  EXPECT_EQ(rows[3]["samples_per_s"], 40.0);
  EXPECT_EQ(rows[3]["stopped_by"], "Limit (rank 1)");
  EXPECT_EQ(rows[3]["peak_memory_bytes"], 3000);
  EXPECT_EQ(rows[3]["compute_seconds"], 0.75);
  ASSERT_EQ(rows[3]["ranks"].size(), 2u);
  EXPECT_EQ(rows[3]["ranks"][1]["rank"], 1);
  EXPECT_EQ(rows[3]["ranks"][1]["communication_seconds"], 0.75);
}

TEST(TerminateOnNaN, StopsOnNaNAndInfinity) {
  RunReport run;
  run.epochs = 3;
  run.steps_per_epoch = 10;
  for (const double bad : {kNaN, std::numeric_limits<double>::infinity()}) {
    TerminateOnNaN callback;
    callback.on_train_begin(run);
    StepReport step;
    step.loss = 1e30;
    EXPECT_EQ(callback.on_step_end(step), Decision::kContinue);
    EXPECT_EQ(callback.reason(), "");
    step.epoch = 1;
    step.step = 4;
    step.loss = bad;
    step.learning_rate = 0.5;
    EXPECT_EQ(callback.on_step_end(step), Decision::kStop);
    EXPECT_THAT(callback.reason(), HasSubstr("epoch 2/3, step 5/10, at learning rate 0.5"));
  }
}

}  // namespace
}  // namespace rondo
