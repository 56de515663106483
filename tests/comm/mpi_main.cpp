// main of the tests that run under mpirun: MPI lives as long as the tests, only rank 0 prints, except for
// failures.
#include "tests/comm/mpi_main.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "runtime/comm/mpi/session.h"

namespace rondo {
namespace {

std::shared_ptr<MpiSession>& session_slot() {
  static std::shared_ptr<MpiSession> session;
  return session;
}

class FailurePrinter final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.passed()) return;
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "[rank %d] %s.%s: %s:%d: %s\n", test_session()->rank(),
                 test ? test->test_suite_name() : "", test ? test->name() : "",
                 result.file_name() ? result.file_name() : "?", result.line_number(), result.message());
  }
};

}  // namespace

std::shared_ptr<MpiSession> test_session() {
  return session_slot();
}

}  // namespace rondo

int main(int argc, char** argv) {
  rondo::session_slot() = rondo::MpiSession::start();
  testing::InitGoogleTest(&argc, argv);
  if (rondo::test_session()->rank() != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new rondo::FailurePrinter);
  }
  const int result = RUN_ALL_TESTS();
  rondo::session_slot().reset();
  return result;
}
