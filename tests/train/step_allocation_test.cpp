#include <gmock/gmock.h>
#include <unistd.h>

#include <barrier>
#include <filesystem>

#include "runtime/train/callbacks/early_stopping.h"
#include "runtime/train/callbacks/json_lines_logger.h"
#include "runtime/train/callbacks/progress.h"
#include "runtime/train/callbacks/terminate_on_nan.h"
#include "tests/support/count_allocations.h"
#include "tests/train/training_world.h"

namespace rondo {
namespace {

using test::learnable_data;
using test::RankWorld;

// Notes how much was allocated between the ends of two steps.
class AllocationCounter : public Callback {
 public:
  explicit AllocationCounter(int64_t (*count)()) : count_(count) {}
  std::string name() const override { return "AllocationCounter"; }
  Decision on_step_end(const StepReport& report) override {
    const int64_t now = count_();
    if (report.step >= 2) allocated += now - last_;
    steps += report.step >= 2 ? 1 : 0;
    last_ = count_();
    return Decision::kContinue;
  }
  int64_t allocated = 0;
  int64_t steps = 0;

 private:
  int64_t (*count_)();
  int64_t last_ = 0;
};

// Brings the communicator's pools to more collectives at once than steps ever have.
void warm_up(Communicator& comm, std::barrier<>& all_done) {
  std::vector<float> values(24);
  std::vector<Work> in_flight;
  for (float& value : values) {
    const Span span = span_of(std::span(&value, 1));
    in_flight.push_back(comm.all_reduce(span, span, ReduceOp::kSum));
  }
  for (Work& work : in_flight) work.wait();
  all_done.arrive_and_wait();
}

TEST(StepAllocation, NothingFromTheThirdStepOnInAnyThreadOfOneRank) {
  const auto data = learnable_data(200);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("rondo_steps_" + std::to_string(getpid()))).string();
  run_ranks(1, [&](Communicator& comm) {
    RankWorld world(comm, {.optimizer = Adam{.clip = {.global_clipnorm = 1.0}},
                           .buckets = {.first_bytes = 64, .bytes = 128}});
    TerminateOnNaN nan;
    EarlyStopping early({.monitor = "loss", .patience = 9});
    JsonLinesLogger json(path);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> screen(std::tmpfile(), &std::fclose);
    Progress progress({.mode = ProgressMode::kBar, .out = screen.get()});
    AllocationCounter counter(&test::allocations_of_all_threads);
    world.trainer.fit(
        *data, {.batch_size = 9, .epochs = 3, .callbacks = {&nan, &early, &json, &progress, &counter}});
    EXPECT_EQ(counter.steps, 3 * 21);
    EXPECT_EQ(counter.allocated, 0);
  });
  std::filesystem::remove(path);
}

TEST(StepAllocation, NothingFromTheThirdStepOnInTheThreadsOfFourRanks) {
  const auto data = learnable_data(200);
  std::barrier warm(4);
  run_ranks(4, [&](Communicator& comm) {
    RankWorld world(comm, {.optimizer = SGD{.momentum = 0.9}, .buckets = {.first_bytes = 64, .bytes = 128}});
    AllocationCounter counter(&test::allocations_of_this_thread);
    warm_up(comm, warm);
    world.trainer.fit(*data, {.batch_size = 9, .epochs = 3, .callbacks = {&counter}});
    EXPECT_EQ(counter.steps, 3 * 21);
    EXPECT_EQ(counter.allocated, 0);
  });
}

}  // namespace
}  // namespace rondo
