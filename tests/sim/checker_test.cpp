// The double finds each kind of mistake, every time, and accepts programs that are right.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/kernels/cuda/host_launch.h"
#include "tests/sim/control.h"
#include "tests/sim/mistakes.h"

namespace rondo {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kBytes = 4096;

void launch(cudaStream_t stream, const void* read, void* written, size_t bytes = kBytes) {
  const DeviceSpan reads[] = {{read, read == nullptr ? 0 : bytes}};
  const DeviceSpan writes[] = {{written, written == nullptr ? 0 : bytes}};
  rondo_host_launch(stream, reads, writes, [=] {
    if (read != nullptr && written != nullptr) std::memcpy(written, read, bytes);
  });
}

class CheckerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // there are streams
    sim::record_mistakes(true);
    cudaSetDevice(0);
    for (cudaStream_t* stream : {&one_, &two_}) cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
    for (void** data : {&a_, &b_}) cudaMalloc(data, kBytes);
    cudaHostAlloc(&pinned_, kBytes, 0);
    std::memset(pinned_, 7, kBytes);
  }
  void TearDown() override {
    cudaDeviceSynchronize();
    cudaFree(a_);
    cudaFree(b_);
    cudaFreeHost(pinned_);
    cudaEventDestroy(event_);
    cudaStreamDestroy(one_);
    cudaStreamDestroy(two_);
    EXPECT_THAT(sim::take_mistakes(), IsEmpty());
    sim::record_mistakes(false);
  }
  void order(cudaStream_t before, cudaStream_t after) {
    cudaEventRecord(event_, before);
    cudaStreamWaitEvent(after, event_, 0);
  }

  cudaStream_t one_ = nullptr, two_ = nullptr;
  cudaEvent_t event_ = nullptr;
  void *a_ = nullptr, *b_ = nullptr, *pinned_ = nullptr;
};

TEST_F(CheckerTest, AcceptsAnOrderedProgram) {
  cudaMemcpyAsync(a_, pinned_, kBytes, cudaMemcpyDefault, one_);
  order(one_, two_);
  launch(two_, a_, b_);
  order(two_, one_);
  launch(one_, nullptr, a_);
  cudaMemcpyAsync(pinned_, b_, kBytes, cudaMemcpyDefault, one_);
  cudaStreamSynchronize(one_);
  EXPECT_EQ(static_cast<char*>(pinned_)[kBytes - 1], 7);
}

TEST_F(CheckerTest, FindsAReadThatDoesNotWaitForTheWrite) {
  launch(one_, nullptr, a_);
  launch(two_, a_, b_);
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("reads")));
}

TEST_F(CheckerTest, FindsAWriteThatDoesNotWaitForTheRead) {
  launch(one_, a_, b_);
  launch(two_, nullptr, a_);
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("which reads bytes 0 to 4096")));
}

TEST_F(CheckerTest, FindsTwoUnorderedWrites) {
  launch(one_, nullptr, a_);
  launch(two_, nullptr, static_cast<char*>(a_) + kBytes - 16, 16);
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("which writes bytes 4080 to 4096")));
}

TEST_F(CheckerTest, KnowsThatSpansDoNotMeet) {
  launch(one_, nullptr, a_, 64);
  launch(two_, nullptr, static_cast<char*>(a_) + 64, 64);
  launch(one_, b_, nullptr);
  launch(two_, b_, nullptr);
}

TEST_F(CheckerTest, AnEventCoversOnlyWhatWasRecorded) {
  cudaEventRecord(event_, one_);
  launch(one_, nullptr, a_);
  cudaStreamWaitEvent(two_, event_, 0);
  launch(two_, a_, b_);
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("nothing orders it")));
}

TEST_F(CheckerTest, HostWaitsOrderWhatIsQueuedLater) {
  launch(one_, nullptr, a_);
  cudaEventRecord(event_, one_);
  cudaEventSynchronize(event_);
  launch(two_, a_, b_);
  while (cudaStreamQuery(two_) == cudaErrorNotReady) {
  }
  launch(one_, b_, a_);
}

TEST_F(CheckerTest, FindsUseAfterFree) {
  void* gone = nullptr;
  cudaMalloc(&gone, kBytes);
  cudaFree(gone);
  const DeviceSpan reads[] = {{gone, kBytes}};
  rondo_host_launch(one_, reads, {}, [] {});
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("after cudaFree")));
  cudaFree(gone);
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("freed before")));
}

TEST_F(CheckerTest, FindsAnUnorderedFreeAsync) {
  void* data = nullptr;
  cudaMallocAsync(&data, kBytes, one_);
  const DeviceSpan span[] = {{data, kBytes}};
  rondo_host_launch(two_, {}, span, [] {});
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("cudaMallocAsync")));
  cudaFreeAsync(data, one_);
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("cudaFreeAsync")));
}

TEST_F(CheckerTest, FindsAccessPastTheEndAndOutsideOfAllocations) {
  const DeviceSpan past[] = {{static_cast<char*>(a_) + 16, kBytes}};
  rondo_host_launch(one_, past, {}, [] {});
  std::vector<char> ordinary(64);
  const DeviceSpan outside[] = {{ordinary.data(), 64}};
  rondo_host_launch(one_, outside, {}, [] {});
  EXPECT_THAT(sim::take_mistakes(),
              ElementsAre(HasSubstr("16 bytes past the end"), HasSubstr("ordinary host memory")));
}

TEST_F(CheckerTest, FindsMemoryOfAnotherDevice) {
  void* other = nullptr;
  cudaSetDevice(1);
  cudaMalloc(&other, kBytes);
  cudaSetDevice(0);
  const DeviceSpan span[] = {{other, kBytes}};
  rondo_host_launch(one_, span, {}, [] {});
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("belongs to another device")));
  cudaMemcpyAsync(a_, other, kBytes, cudaMemcpyDefault, one_);  // copies between devices are fine
  cudaStreamSynchronize(one_);
  cudaFree(other);
}

TEST_F(CheckerTest, RefusesALaunchWhileAnotherDeviceIsCurrent) {
  cudaSetDevice(1);
  launch(one_, a_, b_);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CheckerTest, HidesADownloadUntilTheHostHasWaited) {
  cudaMemsetAsync(a_, 5, kBytes, one_);
  cudaMemcpyAsync(pinned_, a_, kBytes, cudaMemcpyDefault, one_);
  EXPECT_EQ(static_cast<unsigned char*>(pinned_)[0], 0xFF);
  cudaStreamSynchronize(one_);
  EXPECT_EQ(static_cast<unsigned char*>(pinned_)[0], 5);
}

TEST_F(CheckerTest, FindsAHostThatOverwritesAnUploadInFlight) {
  cudaMemcpyAsync(a_, pinned_, kBytes, cudaMemcpyDefault, one_);
  static_cast<char*>(pinned_)[3] = 1;
  cudaStreamSynchronize(one_);
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("wrote into the pinned source")));
}

TEST_F(CheckerTest, FindsPinnedMemoryFreedInFlight) {
  void* pinned = nullptr;
  cudaHostAlloc(&pinned, kBytes, 0);
  cudaMemcpyAsync(a_, pinned, kBytes, cudaMemcpyDefault, one_);
  cudaEventRecord(event_, one_);
  while (cudaEventQuery(event_) == cudaErrorNotReady) {
  }
  cudaFreeHost(pinned);  // waited: fine
  EXPECT_THAT(sim::take_mistakes(), IsEmpty());
  launch(one_, pinned_, a_);
  cudaFreeHost(pinned_);
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("queued work uses")));
  cudaHostAlloc(&pinned_, kBytes, 0);
}

TEST_F(CheckerTest, BlockingStreamsOrderWithTheDefaultStream) {
  cudaStream_t blocking = nullptr;
  cudaStreamCreate(&blocking);
  launch(blocking, nullptr, a_);
  launch(nullptr, a_, b_);
  launch(blocking, nullptr, a_);
  EXPECT_THAT(sim::take_mistakes(), IsEmpty());
  launch(one_, b_, nullptr);  // a non-blocking one does not
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("the default stream")));
  cudaStreamDestroy(blocking);
}

TEST_F(CheckerTest, CapturedWorkRunsAndIsCheckedWithEachLaunch) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
  cudaMemcpyAsync(a_, pinned_, kBytes, cudaMemcpyDefault, one_);
  order(one_, two_);
  launch(two_, a_, b_);
  cudaEvent_t joined = nullptr;
  cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
  cudaEventRecord(joined, two_);
  cudaStreamWaitEvent(one_, joined, 0);
  ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  std::vector<char> result(kBytes);
  for (const char value : {char{1}, char{2}}) {
    std::memset(pinned_, value, kBytes);
    ASSERT_EQ(cudaGraphLaunch(exec, one_), cudaSuccess);
    cudaMemcpyAsync(result.data(), b_, kBytes, cudaMemcpyDefault, one_);
    EXPECT_EQ(result[9], value);
  }
  EXPECT_THAT(sim::take_mistakes(), IsEmpty());
  launch(two_, a_, nullptr);
  cudaGraphLaunch(exec, one_);
  EXPECT_THAT(sim::take_mistakes(), ElementsAre(HasSubstr("upload")));
  cudaDeviceSynchronize();
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(joined);
}

TEST_F(CheckerTest, RefusesACaptureThatIsNotJoined) {
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
  order(one_, two_);
  launch(two_, a_, b_);
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureUnjoined);
  cudaGetLastError();
}

TEST_F(CheckerTest, RefusesToBlockInACapture) {
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaStreamSynchronize(one_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
}

TEST_F(CheckerTest, ACaptureWaitsForNothingThatIsNotCaptured) {
  cudaGraph_t graph = nullptr;
  cudaEventRecord(event_, two_);
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(cudaStreamWaitEvent(one_, event_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(CheckerTest, CapturedEventsNeverHappen) {
  cudaGraph_t graph = nullptr;
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
  cudaEventRecord(event_, one_);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(two_, event_, 0), cudaErrorCapturedEvent);
  cudaEventRecord(event_, one_);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
}

// In its mode, the capturing thread alone is restricted.
TEST_F(CheckerTest, TheCapturingThreadNeitherAsksNorAllocates) {
  cudaGraph_t graph = nullptr;
  cudaEventRecord(event_, two_);
  cudaEventSynchronize(event_);
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
  std::thread([&] {
    cudaSetDevice(0);
    EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  launch(one_, nullptr, a_);
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  void* memory = nullptr;
  for (const auto& forbidden : {std::function([&] { return cudaEventQuery(event_); }),
                                std::function([&] { return cudaEventSynchronize(event_); }),
                                std::function([&] { return cudaStreamQuery(two_); }),
                                std::function([&] { return cudaStreamSynchronize(two_); }),
                                std::function([&] { return cudaMalloc(&memory, 64); })}) {
    cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
    EXPECT_EQ(forbidden(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureInvalidated);
  }
}

TEST_F(CheckerTest, AGraphNeedsMemory) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal);
  launch(one_, nullptr, a_);
  ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  sim::fail_allocation(1);
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaErrorMemoryAllocation);
  EXPECT_EQ(exec, nullptr);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  const auto before = sim::counters();
  EXPECT_EQ(cudaGraphLaunch(exec, one_), cudaSuccess);
  cudaStreamSynchronize(one_);
  EXPECT_EQ(sim::counters().graph_launches, before.graph_launches + 1);
  EXPECT_EQ(sim::counters().kernels, before.kernels + 1);
  EXPECT_EQ(sim::counters().launches, before.launches);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

using CheckerDeathTest = CheckerTest;

TEST_F(CheckerDeathTest, EndsTheProcessByDefault) {
  EXPECT_DEATH(
      {
        sim::record_mistakes(false);
        launch(one_, nullptr, a_);
        launch(two_, a_, b_);
      },
      "rondo_cuda_sim: MISTAKE: kernel on stream .* of device 0 reads");
}

TEST_F(CheckerDeathTest, TheHostMayNotTouchDeviceMemory) {
  EXPECT_DEATH(static_cast<volatile char*>(a_)[0] = 1, "memory of device 0 is touched");
}

TEST_F(CheckerDeathTest, AKernelMayNotTouchWhatItDidNotDeclare) {
  EXPECT_DEATH(
      {
        DeviceSpan declared;
        declared.data = b_;
        declared.bytes = kBytes;
        rondo_host_launch(one_, std::span(&declared, 1), {},
                          [this] { static_cast<volatile char*>(a_)[0] = 1; });
        cudaStreamSynchronize(one_);
      },
      "memory of device 0 is touched");
}

}  // namespace
}  // namespace rondo
