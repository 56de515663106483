// Callbacks that steer the training, on one rank and on several.
#include <gmock/gmock.h>

#include <cmath>
#include <mutex>

#include "runtime/base/error.h"
#include "runtime/comm/local/self_communicator.h"
#include "runtime/train/callbacks/csv_logger.h"
#include "runtime/train/callbacks/early_stopping.h"
#include "runtime/train/callbacks/lambda_callback.h"
#include "runtime/train/callbacks/learning_rate_scheduler.h"
#include "runtime/train/callbacks/model_checkpoint.h"
#include "runtime/train/callbacks/reduce_lr_on_plateau.h"
#include "tests/train/training_world.h"

namespace rondo::test {
namespace {

struct SelfWorld {
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<Communicator> comm = make_self_communicator(*device);
};

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Replaces the loss that callbacks behind it see.
class Losses : public Callback {
 public:
  explicit Losses(std::vector<double> values) : values_(std::move(values)) {}
  std::string name() const override { return "Losses"; }
  void on_train_begin(const RunReport&) override { epoch_ = 0; }
  void add_logs(Logs& logs) override { set_log(logs, "loss", values_.at(epoch_++)); }

 private:
  std::vector<double> values_;
  size_t epoch_ = 0;
};

std::vector<double> rates_with(const ReduceLROnPlateauOptions& options, const std::vector<double>& losses) {
  SelfWorld self;
  RankWorld world(*self.comm, {.optimizer = SGD{.learning_rate = 1.0}});
  Losses feed(losses);
  ReduceLROnPlateau reduce(options);
  return world.trainer
      .fit(*learnable_data(8),
           {.batch_size = 8, .epochs = static_cast<int64_t>(losses.size()), .callbacks = {&feed, &reduce}})
      .at("lr");
}

TEST(ReduceLROnPlateau, LowersTheRateWhereKerasDoes) {
  // `lr` is the rate that the epoch was trained with.
  EXPECT_THAT(rates_with({.monitor = "loss", .factor = 0.5, .patience = 2}, {5, 4, 4, 4, 4, 4, 3}),
              ElementsAre(1, 1, 1, 1, 0.5, 0.5, 0.25));
  EXPECT_THAT(rates_with({.monitor = "loss", .factor = 0.5, .patience = 1, .min_lr = 0.3}, {5, 5, 5, 5, 5}),
              ElementsAre(1, 1, 0.5, 0.3, 0.3));
  // After a reduction two epochs pass before waiting begins.
  EXPECT_THAT(
      rates_with({.monitor = "loss", .factor = 0.5, .patience = 1, .cooldown = 2}, {5, 5, 5, 5, 5, 5}),
      ElementsAre(1, 1, 0.5, 0.5, 0.25, 0.25));
  EXPECT_THAT(rates_with({.monitor = "loss", .patience = 1, .mode = MonitorMode::kMax}, {1, 2, 3, 3}),
              Each(1.0));
  EXPECT_THAT(
      rates_with({.monitor = "loss", .factor = 0.1, .patience = 1, .min_delta = 0.5}, {5, 4.8, 4.2, 4.2}),
      ElementsAre(1, 1, 0.1, 0.1));
}

TEST(ReduceLROnPlateau, RefusesWhatMakesNoSense) {
  EXPECT_THAT([] { ReduceLROnPlateau({.factor = 1.0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("factor is 1")));
  EXPECT_THAT([] { ReduceLROnPlateau({.patience = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("patience is -1")));
  EXPECT_THAT([] { ReduceLROnPlateau({.min_lr = -1.0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("min_lr is -1")));
  EXPECT_THAT(
      [] { rates_with({.monitor = "val_loss"}, {1}); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("ReduceLROnPlateau"), HasSubstr("validation data"))));
}

TEST(LearningRateScheduler, SetsTheRateOfEachEpoch) {
  SelfWorld self;
  RankWorld world(*self.comm, {.optimizer = SGD{.learning_rate = 1.0}});
  std::vector<double> before;
  LearningRateScheduler schedule([&](int64_t epoch, double rate) {
    before.push_back(rate);
    return epoch < 2 ? rate : rate * 0.5;
  });
  Recorder recorder;
  const History history = world.trainer.fit(
      *learnable_data(8), {.batch_size = 4, .epochs = 4, .callbacks = {&schedule, &recorder}});
  EXPECT_THAT(before, ElementsAre(1, 1, 1, 0.5));
  EXPECT_THAT(history.at("lr"), ElementsAre(1, 1, 0.5, 0.25));
  EXPECT_EQ(history.history.back().first, "lr");
  EXPECT_EQ(recorder.steps[4].learning_rate, 0.5);
  EXPECT_EQ(recorder.epochs[3].logs.back().first, "lr");  // callbacks behind it see it

  LearningRateScheduler wrong([](int64_t epoch, double) { return epoch == 1 ? -1.0 : 1.0; });
  EXPECT_THAT(
      [&] { world.trainer.fit(*learnable_data(8), {.epochs = 2, .callbacks = {&wrong}}); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("epoch 2 is -1"), HasSubstr("LearningRateScheduler"))));
  EXPECT_THROW(LearningRateScheduler(nullptr), InvalidArgument);
}

TEST(LearningRateScheduler, RanksThatDisagreeEndTogether) {
  const auto errors = errors_of_ranks(3, [](Communicator& comm) {
    RankWorld world(comm);
    LearningRateScheduler schedule(
        [&](int64_t epoch, double) { return epoch == 1 && comm.rank() == 2 ? 0.25 : 0.5; });
    world.trainer.fit(*learnable_data(12), {.batch_size = 6, .epochs = 3, .callbacks = {&schedule}});
  });
  EXPECT_THAT(errors, Each(HasSubstr("learning rate 0.5 on rank 0, but 0.25 on rank 2")));
}

TEST(EarlyStoppingWeights, AreThoseOfTheBestEpochOnAllRanks) {
  for (const int ranks : {1, 3}) {
    std::mutex mutex;
    std::vector<std::vector<float>> restored;
    errors_of_ranks(ranks, [&](Communicator& comm) {
      RankWorld world(comm, {.optimizer = SGD{.learning_rate = 0.1}});
      Losses feed({5, 3, 4, 4, 1});
      EarlyStopping stop({.monitor = "loss", .patience = 2, .restore_best_weights = true});
      std::vector<std::vector<float>> after;
      LambdaCallback watch({.on_epoch_end = [&](const EpochReport&) {
        world.trainer.synchronize();
        after.push_back(world.network.trained_weights());
      }});
      const History history = world.trainer.fit(
          *learnable_data(13), {.batch_size = 6, .epochs = 5, .callbacks = {&feed, &watch, &stop}});
      EXPECT_EQ(history.epoch.size(), 4u);
      EXPECT_THAT(history.end.stop_reason, HasSubstr("epoch 2, whose weights are restored"));
      EXPECT_EQ(world.network.trained_weights(), after[1]);
      EXPECT_NE(after[3], after[1]);
      const std::lock_guard lock(mutex);
      restored.push_back(world.network.weights());
    });
    ASSERT_EQ(restored.size(), static_cast<size_t>(ranks));
    for (const auto& weights : restored) EXPECT_EQ(weights, restored[0]);
  }
}

TEST(EarlyStoppingWeights, StayWhenTheRunEndsByItself) {
  SelfWorld self;
  RankWorld world(*self.comm, {.optimizer = SGD{.learning_rate = 0.1}});
  Losses feed({5, 3, 4});
  EarlyStopping stop({.monitor = "loss", .patience = 5, .restore_best_weights = true});
  std::vector<float> last;
  LambdaCallback watch({.on_epoch_end = [&](const EpochReport&) { last = world.network.trained_weights(); }});
  world.trainer.fit(*learnable_data(8), {.batch_size = 8, .epochs = 3, .callbacks = {&feed, &watch, &stop}});
  EXPECT_EQ(world.network.trained_weights(), last);
}

std::vector<std::string> files_of(ModelCheckpointOptions options, int64_t epochs = 4, int ranks = 1) {
  std::mutex mutex;
  std::vector<std::vector<std::string>> calls(static_cast<size_t>(ranks));
  const auto errors = errors_of_ranks(ranks, [&](Communicator& comm) {
    RankWorld world(comm);
    Losses feed({5, 3, 4, 2.5});
    ModelCheckpointOptions mine = options;
    mine.save = [&](const std::string& path, bool weights_only) {
      const std::lock_guard lock(mutex);
      calls[static_cast<size_t>(comm.rank())].push_back(path + (weights_only ? " weights" : ""));
    };
    ModelCheckpoint checkpoint(mine);
    const auto data = learnable_data(10);
    world.trainer.fit(
        *data,
        {.batch_size = 4, .epochs = epochs, .validation = data.get(), .callbacks = {&feed, &checkpoint}});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  for (const auto& of_rank : calls) EXPECT_EQ(of_rank, calls[0]);
  return calls[0];
}

TEST(ModelCheckpoint, SavesAfterEpochsAndBatchesAsKerasDoes) {
  EXPECT_THAT(files_of({.path = "m.h5"}, 2, 3), ElementsAre("m.h5", "m.h5"));
  EXPECT_THAT(files_of({.path = "w{epoch:02d}-{loss:.2f}.h5", .save_weights_only = true}, 2),
              ElementsAre("w01-5.00.h5 weights", "w02-3.00.h5 weights"));
  EXPECT_THAT(files_of({.path = "{epoch}", .monitor = "loss", .save_best_only = true}),
              ElementsAre("1", "2", "4"));
  EXPECT_THAT(
      files_of(
          {.path = "{epoch}", .monitor = "loss", .save_best_only = true, .initial_value_threshold = 3.0}),
      ElementsAre("4"));
  EXPECT_THAT(
      files_of({.path = "{epoch}", .monitor = "loss", .save_best_only = true, .mode = MonitorMode::kMax}),
      ElementsAre("1"));
  // Three steps in an epoch; the count goes on over epochs.
  EXPECT_THAT(files_of({.path = "{epoch}.{batch}", .save_every_steps = 4}, 3), ElementsAre("2.1", "3.2"));
}

TEST(ModelCheckpoint, RefusesWhatItCannotDo) {
  const auto save = [](const std::string&, bool) {};
  EXPECT_THAT([] { ModelCheckpoint({.path = "m.h5", .save = {}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("save with")));
  EXPECT_THAT([&] { ModelCheckpoint({.path = "", .save = save}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no path")));
  SelfWorld self;
  RankWorld world(*self.comm);
  const auto begin = [&](ModelCheckpointOptions options) {
    options.save = save;
    return [&world, options] {
      ModelCheckpoint checkpoint(options);
      world.trainer.fit(*learnable_data(8), {.callbacks = {&checkpoint}});
    };
  };
  EXPECT_THAT(begin({.path = "{val_loss:.2f}.h5"}),
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("{val_loss:.2f}.h5"), HasSubstr("epoch, loss, accuracy"))));
  EXPECT_THAT(begin({.path = "{epoch"}), ThrowsMessage<InvalidArgument>(HasSubstr("{epoch")));
  EXPECT_THAT(begin({.path = "m.h5", .save_best_only = true}),
              ThrowsMessage<InvalidArgument>(HasSubstr("monitors 'val_loss'")));
}

TEST(ModelCheckpoint, AFileThatCannotBeWrittenEndsTheRunOnAllRanks) {
  const auto errors = errors_of_ranks(2, [](Communicator& comm) {
    RankWorld world(comm);
    ModelCheckpoint checkpoint({.path = "m.h5", .save = [](const std::string& path, bool) {
                                  raise<FileError>("{}: no space left", path);
                                }});
    world.trainer.fit(*learnable_data(8), {.batch_size = 4, .epochs = 50, .callbacks = {&checkpoint}});
  });
  EXPECT_THAT(errors, Each(HasSubstr("no space left")));
}

}  // namespace
}  // namespace rondo::test
