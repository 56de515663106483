// A GPU that hangs, or a rank that never calls: the others end at the deadline, with an error that says so.
// RONDO_SIM_NCCL_HANG and RONDO_SIM_HANG are read once a process: each case is a run of this program.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/launch/gpu_loader.h"

namespace rondo {
namespace {

TEST(Hang, EveryRankEndsAtTheDeadline) {
  const FoundGpus found = find_gpus();
  ASSERT_NE(found.module, nullptr) << found.reason;
  std::vector<std::string> errors(2);
  const Stopwatch watch;
  run_ranks(2, [&](Communicator& host) {
    const auto device = found.module->make_device(host.rank());
    const auto comm =
        found.module->make_communicator(host, *device, {.deadline = std::chrono::milliseconds(1500)});
    const Buffer buffer = comm->allocate(4096);
    const Span span{buffer.data(), 1024, DType::kF32};
    try {
      for (int i = 0; i < 100; ++i)
        comm->all_reduce(span, span, ReduceOp::kSum, {.label = "gradients"}).wait();
    } catch (const PeerError& error) {
      errors[static_cast<size_t>(host.rank())] = error.what();
    }
    host.barrier().wait();
    EXPECT_LT(watch.seconds(), 20.0);
    for (const std::string& error : errors) {
      EXPECT_THAT(error, testing::HasSubstr("was not done within 1500 ms"));
      EXPECT_THAT(error, testing::HasSubstr("gradients"));
    }
    host.barrier().wait();
    // What hangs cannot be synchronized with.
    if (host.rank() != 0) std::this_thread::sleep_for(std::chrono::hours(1));
    std::fflush(nullptr);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  });
}

}  // namespace
}  // namespace rondo
