// A rank that fails ends the job: one message, nobody waits.
#include <gtest/gtest.h>

#include "tests/program/fixture.h"

namespace rondo::test {
namespace {

class Failure : public ProgramTest {
 protected:
  void expect_failure(const std::string& what, int code, const std::string& text) {
    SCOPED_TRACE(what);
    const Outcome outcome = run_command(faulty_line(what, 3), folder_);
    expect_one_error(outcome, code, "faulty", text);
    EXPECT_EQ(outcome.out.find("done"), std::string::npos);
  }
};

TEST_F(Failure, NothingGoesWrong) {
  EXPECT_EQ(run_command(faulty_line("nothing", 3), folder_).out, "done with 3 ranks\n");
  EXPECT_EQ(run_command(faulty_line("nothing", 0), folder_).out, "done with 1 ranks\n");
}

TEST_F(Failure, OneRankThrows) {
  expect_failure("throw", 1, "rank 1 (");
  expect_failure("throw 0", 1, "rank 0 (");
  expect_failure("throw 2", 1, "the disk is full");
  expect_failure("throw-int", 1, "rank 1 (");
}

TEST_F(Failure, AThreadThrows) {
  expect_failure("thread", 1, "the loader broke");
}

TEST_F(Failure, AllRanksThrowAlike) {
  expect_failure("throw-everywhere", 1, "the disk is full");
  expect_failure("option-everywhere", 2, "error: the option is wrong");
}

TEST_F(Failure, OneRankHasAWrongOption) {
  expect_failure("option-here", 2, "rank 1 (");
}

TEST_F(Failure, CheckedTogether) {
  expect_failure("file-checked", 1, "data.idx: truncated");
  expect_failure("mismatch", 1, "ranks disagree on --batch-size");
}

// Without run(): the exception leaves main.
TEST_F(Failure, NobodyCatches) {
  expect_failure("bare-throw", 1, "rank 1 (");
  expect_failure("bare-throw-everywhere", 1, "the disk is full");
}

TEST_F(Failure, ARankIsGone) {
  expect_failure("kill", 137, "rank 1 (");
  expect_failure("kill 0", 137, "rank 0 (");
  expect_failure("segfault", 139, "rank 1 (");
  expect_failure("exit", 7, "rank 1 (");
}

TEST_F(Failure, AloneItIsTheSame) {
  expect_one_error(run_command(faulty_line("throw 0", 0), folder_), 1, "faulty", "error: the disk is full");
  expect_one_error(run_command(faulty_line("bare-throw 0", 0), folder_), 1, "faulty",
                   "error: the disk is full");
}

}  // namespace
}  // namespace rondo::test
