#include "runtime/train/callbacks/early_stopping.h"

#include <gmock/gmock.h>

#include <limits>

#include "runtime/base/error.h"

namespace rondo {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Mode = EarlyStoppingOptions::Mode;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

RunReport run_of(bool validates) {
  RunReport run;
  run.epochs = 100;
  run.metric_names = {"accuracy"};
  run.validates = validates;
  return run;
}

// The index of the epoch in which it stops, or -1.
int64_t stops_in(EarlyStopping& callback, const std::string& name, const std::vector<double>& values,
                 int64_t first_epoch = 0) {
  callback.on_train_begin(run_of(true));
  for (size_t i = 0; i < values.size(); ++i) {
    EpochReport report;
    report.epoch = first_epoch + static_cast<int64_t>(i);
    report.logs = {{"loss", 1.0}, {"accuracy", 0.5}, {"val_loss", 1.0}, {"val_accuracy", 0.5}};
    for (auto& [known, value] : report.logs) {
      if (known == name) value = values[i];
    }
    if (callback.on_epoch_end(report) == Decision::kStop) return report.epoch;
  }
  return -1;
}

TEST(EarlyStopping, StopsWhereKerasDoes) {
  struct Case {
    const char* what;
    EarlyStoppingOptions options;
    std::vector<double> values;
    int64_t stops;
  };
  const std::vector<Case> cases{
      {"always better", {.patience = 1}, {5, 4, 3, 2, 1}, -1},
      {"patience 0 acts like 1", {.patience = 0}, {5, 4, 4, 3}, 2},
      {"patience 1", {.patience = 1}, {5, 4, 4, 3}, 2},
      {"patience 2 is used up", {.patience = 2}, {5, 4, 4, 4, 3}, 3},
      {"patience 2 is reset in between", {.patience = 2}, {5, 4, 4, 3, 3, 2}, -1},
      {"the best counts, not the last", {.patience = 3}, {5, 1, 4, 3, 2}, 4},
      {"equal is no improvement", {.patience = 1}, {5, 5}, 1},
      {"epoch 0 never stops", {.patience = 0}, {kNaN, kNaN}, 1},
      {"NaN is no improvement", {.patience = 2}, {5, kNaN, kNaN, 1}, 2},
      {"a change below min_delta", {.min_delta = 0.5, .patience = 2}, {5, 4.8, 4.6, 1}, 2},
      {"min_delta counts from the best", {.min_delta = 0.5, .patience = 3}, {5, 4.8, 4.6, 4.4, 4.4}, -1},
      {"a change of min_delta exactly", {.min_delta = 0.5, .patience = 1}, {5, 4.5}, 1},
      {"the sign of min_delta", {.min_delta = -0.5, .patience = 2}, {5, 4.8, 4.6, 1}, 2},
      {"accuracy: larger is better", {.monitor = "val_accuracy", .patience = 1}, {0.1, 0.2, 0.3, 0.3}, 3},
      {"min_delta upwards",
       {.monitor = "val_accuracy", .min_delta = 0.05, .patience = 2},
       {0.1, 0.14, 0.15, 0.9},
       2},
      {"mode max of a loss", {.patience = 1, .mode = Mode::kMax}, {1, 2, 3, 2}, 3},
      {"mode min of an accuracy",
       {.monitor = "val_accuracy", .patience = 1, .mode = Mode::kMin},
       {0.3, 0.2, 0.25},
       2},
      {"baseline never beaten", {.patience = 3, .baseline = 1.0}, {5, 5, 5, 5}, 2},
      {"an epoch that improves does not stop", {.patience = 3, .baseline = 1.0}, {5, 4, 3, 2, 2}, 4},
      {"baseline beaten in time", {.patience = 3, .baseline = 4.5}, {5, 4, 4, 3, 3}, -1},
  };
  for (const Case& one : cases) {
    EarlyStopping callback(one.options);
    EXPECT_EQ(stops_in(callback, one.options.monitor, one.values), one.stops) << one.what;
  }
}

TEST(EarlyStopping, RemembersTheBestAndStartsAnewWithEachRun) {
  EarlyStopping callback({.patience = 2});
  EXPECT_EQ(stops_in(callback, "val_loss", {5, 2, 3, 4}), 3);
  EXPECT_EQ(callback.best(), 2.0);
  EXPECT_EQ(callback.best_epoch(), 1);
  EXPECT_THAT(callback.reason(),
              HasSubstr("val_loss did not improve for 2 epochs; its best was 2 in epoch 2"));
  EXPECT_EQ(stops_in(callback, "val_loss", {9, 8, 7}), -1);
  EXPECT_EQ(callback.best(), 7.0);
  EXPECT_EQ(callback.reason(), "");
}

TEST(EarlyStopping, AnUnknownValueIsRefusedWithTheKnownOnes) {
  EarlyStopping callback({.monitor = "val_acc"});
  EXPECT_THAT([&] { callback.on_train_begin(run_of(true)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("loss, accuracy, val_loss, val_accuracy")));
  EarlyStopping validation({.monitor = "val_loss"});
  EXPECT_THAT([&] { validation.on_train_begin(run_of(false)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("need validation data")));
  EXPECT_THROW(EarlyStopping({.patience = -1}), InvalidArgument);
  EXPECT_THROW(EarlyStopping({.min_delta = kNaN}), InvalidArgument);
}

}  // namespace
}  // namespace rondo
