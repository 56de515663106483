// What is wrong is found before the first step where it can be, and told to every rank always.
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <stdexcept>

#include "runtime/base/error.h"
#include "tests/train/training_world.h"

namespace rondo {
namespace {

using test::errors_of_ranks;
using test::FakeNetworkOptions;
using test::learnable_data;
using test::RankWorld;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

// A source with `size` samples; the one at `broken` cannot be read.
class FragileSource : public SubsetSource {
 public:
  FragileSource(std::shared_ptr<const Source> parent, int64_t broken)
      : SubsetSource(parent, 0, parent->size(), "fragile"), broken_(broken) {}
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override {
    if (index == broken_) throw FileError("fragile: sample is damaged");
    SubsetSource::read(index, input, label);
  }

 private:
  int64_t broken_;
};

class EmptySource : public SubsetSource {
 public:
  explicit EmptySource(std::shared_ptr<const Source> parent) : SubsetSource(parent, 0, 1, "nothing") {}
  int64_t size() const override { return 0; }
};

class Thrower : public Callback {
 public:
  std::string name() const override { return "Thrower"; }
  Decision on_step_end(const StepReport& report) override {
    if (report.step == at_step) throw FileError("/disk/log: full");
    return Decision::kContinue;
  }
  void on_train_begin(const RunReport&) override {
    if (at_begin) throw InvalidArgument("no such value");
  }
  void on_train_end(const EndReport&) override {
    if (at_end) throw std::runtime_error("too late");
  }
  int64_t at_step = -1;
  bool at_begin = false;
  bool at_end = false;
};

TEST(FitOptions, OutOfRangeIsRefusedBeforeAnyStep) {
  const auto data = learnable_data(20);
  const EmptySource empty(data);
  struct Case {
    FitOptions options;
    const Source* source;
    const char* expected;
  };
  const std::vector<Case> cases{
      {{.batch_size = 0}, data.get(), "batch_size is 0; it must be at least 1"},
      {{.batch_size = -4}, data.get(), "batch_size is -4"},
      {{.epochs = 0}, data.get(), "epochs is 0"},
      {{.epochs = 2, .initial_epoch = 3}, data.get(), "initial_epoch is 3; it must lie in 0..2"},
      {{.initial_epoch = -1}, data.get(), "initial_epoch is -1"},
      {{.steps_per_epoch = -1}, data.get(), "steps_per_epoch is -1"},
      {{.validation_batch_size = -1}, data.get(), "validation_batch_size is -1"},
      {{.loader_threads = -1}, data.get(), "loader_threads is -1"},
      {{.callbacks = {nullptr}}, data.get(), "callback 0 is a null pointer"},
      {{}, &empty, "the training data (nothing) is empty"},
      {{.validation = &empty}, data.get(), "the validation data (nothing) is empty"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.expected);
    const auto errors = errors_of_ranks(2, [&](Communicator& comm) {
      RankWorld world(comm);
      world.network.on_step = [](const StepState&) { FAIL() << "a step was made"; };
      EXPECT_THROW(world.trainer.fit(*one.source, one.options), InvalidArgument);
      world.trainer.fit(*one.source, one.options);  // the communicator can still be used
    });
    EXPECT_THAT(errors, Each(HasSubstr(one.expected)));
  }
}

TEST(FitOptions, WhatDiffersBetweenRanksIsNamedOnAll) {
  const auto data = learnable_data(20);
  const auto other_data = learnable_data(20, 77);
  const auto more_data = learnable_data(21);
  struct Case {
    FitOptions options;
    const Source* source;
    const char* expected;
  };
  const std::vector<Case> cases{
      {{.batch_size = 16}, data.get(), "batch_size: \"32\" on ranks 0-1"},
      {{.epochs = 2}, data.get(), "epochs: \"1\" on ranks 0-1"},
      {{.steps_per_epoch = 2}, data.get(), "steps_per_epoch"},
      {{.shuffle = false}, data.get(), "shuffle: \"true\" on ranks 0-1"},
      {{.seed = 9}, data.get(), "seed: \"0\" on ranks 0-1"},
      {{.validation = data.get()}, data.get(), "validation"},
      {{}, other_data.get(), "data digest"},
      {{}, more_data.get(), "data size: \"20\" on ranks 0-1"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.expected);
    const auto errors = errors_of_ranks(3, [&](Communicator& comm) {
      RankWorld world(comm);
      world.network.on_step = [](const StepState&) { FAIL() << "a step was made"; };
      if (comm.rank() == 2) {
        world.trainer.fit(*one.source, one.options);
      } else {
        world.trainer.fit(*data, {});
      }
    });
    EXPECT_THAT(errors,
                Each(AllOf(HasSubstr("ranks disagree"), HasSubstr(one.expected), HasSubstr("rank 2"))));
  }
}

TEST(TrainerSetUp, WhatDiffersBetweenRanksIsNamedOnAll) {
  struct Case {
    TrainerOptions options;
    FakeNetworkOptions network;
    const char* expected;
  };
  const std::vector<Case> cases{
      {{.optimizer = SGD{.learning_rate = 0.5}}, {}, "optimizer"},
      {{.optimizer = Adam{}}, {}, "optimizer"},
      {{.buckets = {.first_bytes = 64}}, {}, "bucket bytes"},
      {{}, {.hidden = 8}, "parameter 0: \"dense_1/kernel (5, 7)"},
      {{}, {.first_name = "other"}, "parameter 1: \"dense_1/bias"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.expected);
    const auto errors = errors_of_ranks(3, [&](Communicator& comm) {
      if (comm.rank() == 1) {
        RankWorld world(comm, one.options, one.network);
      } else {
        RankWorld world(comm);
      }
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr(one.expected), HasSubstr("on rank 1"))));
  }
}

TEST(TrainerSetUp, OptimizerSettingsOutOfRangeAreTold) {
  const auto errors = errors_of_ranks(2, [&](Communicator& comm) {
    RankWorld world(comm, {.optimizer = SGD{.learning_rate = comm.rank() == 1 ? -1.0 : 0.1}});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("setting up the trainer failed on rank 1"), HasSubstr("-1"))));
}

// What a rank throws inside fit: on itself unchanged, on the others as PeerError with place and reason.
void expect_told(const std::function<void(RankWorld&, FitOptions&)>& arm, const std::string& where,
                 const std::string& what, const Source& data) {
  constexpr int kRanks = 3;
  std::vector<char> peer(kRanks, 0);
  const auto errors = errors_of_ranks(kRanks, [&](Communicator& comm) {
    RankWorld world(comm);
    FitOptions options{.batch_size = 8, .epochs = 2};
    Thrower harmless;
    options.callbacks = {&harmless};
    if (comm.rank() == 1) arm(world, options);
    try {
      world.trainer.fit(data, options);
    } catch (const PeerError&) {
      peer[static_cast<size_t>(comm.rank())] = 1;
      throw;
    }
  });
  EXPECT_THAT(peer, ::testing::ElementsAre(1, 0, 1));
  EXPECT_THAT(errors[1], HasSubstr(what));
  for (const size_t other : {0, 2}) {
    EXPECT_THAT(errors[other], AllOf(HasSubstr("rank 1"), HasSubstr(where), HasSubstr(what)));
  }
}

TEST(FitFailure, ARankThatThrowsInForwardStopsAll) {
  const auto data = learnable_data(24);
  expect_told(
      [](RankWorld& world, FitOptions&) {
        world.network.on_step = [](const StepState& state) {
          if (state.step == 4) throw std::runtime_error("out of luck");
        };
      },
      "epoch 2/2, step 2/3", "out of luck", *data);
}

TEST(FitFailure, ACallbackThatThrowsIsNamed) {
  const auto data = learnable_data(24);
  Thrower thrower;
  thrower.at_step = 1;
  expect_told([&](RankWorld&, FitOptions& options) { options.callbacks = {&thrower}; }, "epoch 1/2, step 2/3",
              "/disk/log: full (in callback Thrower)", *data);
}

TEST(FitFailure, ASampleThatCannotBeReadStopsAll) {
  const FragileSource data(learnable_data(24), 13);
  std::vector<std::string> errors = errors_of_ranks(2, [&](Communicator& comm) {
    RankWorld world(comm);
    world.trainer.fit(data, {.batch_size = 8, .shuffle = false});
  });
  // Sample 13 is in the second batch, in the second rank's part of it.
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("sample is damaged"), HasSubstr("sample 13"))));
  EXPECT_THAT(errors[0], HasSubstr("epoch 1/1, step 2/3"));
}

TEST(FitFailure, CallbacksThatCannotStartOrEndFailOnAllRanks) {
  const auto data = learnable_data(24);
  const auto begin = errors_of_ranks(2, [&](Communicator& comm) {
    RankWorld world(comm);
    Thrower thrower;
    thrower.at_begin = comm.rank() == 0;
    EXPECT_THROW(world.trainer.fit(*data, {.callbacks = {&thrower}}), InvalidArgument);
    thrower.at_begin = false;
    thrower.at_end = comm.rank() == 0;
    world.trainer.fit(*data, {.callbacks = {&thrower}});
  });
  EXPECT_THAT(begin, Each(AllOf(HasSubstr("on rank 0"), HasSubstr("too late (in callback Thrower)"))));
}

TEST(FitFailure, EvaluationAndPredictionTellTheirPeers) {
  const FragileSource data(learnable_data(24), 23);
  const auto evaluation =
      errors_of_ranks(2, [&](Communicator& comm) { RankWorld(comm).trainer.evaluate(data, 8); });
  EXPECT_THAT(evaluation, Each(HasSubstr("sample is damaged")));
  EXPECT_THAT(evaluation[0], HasSubstr("evaluation: "));
  const auto prediction =
      errors_of_ranks(2, [&](Communicator& comm) { RankWorld(comm).trainer.predict(data, 8); });
  EXPECT_THAT(prediction, Each(HasSubstr("sample is damaged")));
  const auto zero =
      errors_of_ranks(2, [&](Communicator& comm) { RankWorld(comm).trainer.evaluate(data, 0); });
  EXPECT_THAT(zero, Each(HasSubstr("batch_size is 0")));
}

}  // namespace
}  // namespace rondo
