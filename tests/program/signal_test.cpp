// Ctrl-C, SIGTERM and SIGKILL in the middle of training.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/program/fixture.h"

namespace rondo::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Signals : public ProgramTest {
 protected:
  // Runs for minutes, unless somebody stops it.
  static std::string long_run() {
    return "--model mlp --data synthetic --epochs 1000 --steps-per-epoch 50 --log-jsonl log.jsonl --progress "
           "lines";
  }

  // Its last line; the log must be whole.
  nlohmann::json last_event() const {
    const std::string text = read_text(folder_ / "log.jsonl");
    if (text.empty() || text.back() != '\n') return {{"event", "cut off"}};
    const size_t begin = text.rfind('\n', text.size() - 2) + 1;
    return nlohmann::json::parse(text.substr(begin));
  }

  // From the signal to the end.
  static Outcome timed_wait(Command& command, double& seconds_to_end) {
    const auto start = std::chrono::steady_clock::now();
    Outcome outcome = command.wait(seconds(20));
    seconds_to_end = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return outcome;
  }
};

TEST_F(Signals, InterruptAloneFinishesTheStepAndTheLog) {
  Command command(train_line(long_run()), folder_);
  ASSERT_TRUE(command.wait_for_output("epoch 1/1000"));
  kill(command.pid(), SIGINT);
  double waited = 0.0;
  const Outcome outcome = timed_wait(command, waited);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_LT(waited, 10.0);
  EXPECT_EQ(outcome.lines_with("train: ").size(), 1U) << outcome.err;
  const nlohmann::json end = last_event();
  EXPECT_EQ(end.at("event"), "end");
  EXPECT_GT(end.at("steps"), 0);
}

TEST_F(Signals, TerminateAlone) {
  Command command(train_line(long_run()), folder_);
  ASSERT_TRUE(command.wait_for_output("epoch 1/1000"));
  kill(command.pid(), SIGTERM);
  double waited = 0.0;
  const Outcome outcome = timed_wait(command, waited);
  EXPECT_EQ(outcome.code, 143);
  EXPECT_EQ(outcome.lines_with("train: stopped by SIGTERM").size(), 1U) << outcome.err;
}

TEST_F(Signals, SecondInterruptEndsAtOnce) {
  Command command(faulty_line("hang", 0), folder_);
  ASSERT_TRUE(command.wait_for_output("hanging"));
  kill(command.pid(), SIGINT);
  std::this_thread::sleep_for(milliseconds(300));
  const auto start = std::chrono::steady_clock::now();
  kill(command.pid(), SIGINT);
  const Outcome outcome = command.wait(seconds(20));
  EXPECT_EQ(outcome.code, 130);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(2));
}

TEST_F(Signals, OneThatIsIgnoredStillEnds) {
  Command command(faulty_line("hang", 0), folder_);
  ASSERT_TRUE(command.wait_for_output("hanging"));
  kill(command.pid(), SIGTERM);
  double waited = 0.0;
  const Outcome outcome = timed_wait(command, waited);
  EXPECT_EQ(outcome.code, 143);
  EXPECT_LT(waited, 10.0);
}

TEST_F(Signals, InterruptOfTheLauncher) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Command command(train_line(long_run(), 2), folder_);
    ASSERT_TRUE(command.wait_for_output("epoch 1/1000"));
    kill(command.pid(), signal);
    double waited = 0.0;
    const Outcome outcome = timed_wait(command, waited);
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_NE(outcome.code, 0);
    EXPECT_LT(waited, 10.0);
    EXPECT_LE(outcome.lines_with("train: ").size(), 1U) << outcome.err;
    EXPECT_TRUE(descendants(command.pid(), "train").empty());
  }
}

TEST_F(Signals, ARankIsKilledInMidStep) {
  for (const size_t victim : {size_t{0}, size_t{1}}) {
    Command command(train_line(long_run(), 2), folder_);
    ASSERT_TRUE(command.wait_for_output("epoch 1/1000"));
    const std::vector<pid_t> ranks = descendants(command.pid(), "train");
    ASSERT_EQ(ranks.size(), 2U);
    kill(ranks[victim], SIGKILL);
    double waited = 0.0;
    const Outcome outcome = timed_wait(command, waited);
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_NE(outcome.code, 0);
    EXPECT_LT(waited, 10.0);
    const std::vector<std::string> errors = outcome.lines_with("train: ");
    ASSERT_EQ(errors.size(), 1U) << outcome.err;
    EXPECT_EQ(errors.front().rfind("train: error: rank ", 0), 0U) << errors.front();
  }
}

}  // namespace
}  // namespace rondo::test
