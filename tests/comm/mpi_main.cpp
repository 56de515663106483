// main of the tests that run under mpirun: MPI lives as long as the tests, only rank 0 prints, except for
// failures.
#include "tests/comm/mpi_main.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "runtime/comm/mpi/session.h"

namespace rondo {
namespace {

std::shared_ptr<MpiSession>& session_slot() {
  static std::shared_ptr<MpiSession> session;
  return session;
}

class FailurePrinter final : public testing::EmptyTestEventListener {
  // Remembered here, since GoogleTest holds its lock while it reports a result.
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.passed()) return;
    std::fprintf(stderr, "[rank %d] %s: %s:%d: %s\n", test_session()->rank(), test_.c_str(),
                 result.file_name() != nullptr ? result.file_name() : "?", result.line_number(),
                 result.message());
  }

  std::string test_;
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
