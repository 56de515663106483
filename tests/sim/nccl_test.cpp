// The double's NCCL among ranks that are threads of one process, each with a device of its own.
#include <gmock/gmock.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/sim/control.h"
#include "tests/sim/mistakes.h"

namespace rondo {
namespace {

constexpr int kRanks = 4;

struct Rank {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

// f(rank) on a thread for each rank; the communicators end in order behind it.
void run_ranks(int ranks, const std::function<void(Rank&)>& f, bool blocking = true, bool end = true) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank{.rank = r};
      ASSERT_EQ(cudaSetDevice(r), cudaSuccess);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = blocking ? 1 : 0;
      ncclResult_t result = ncclCommInitRankConfig(&rank.comm, ranks, id, r, &config);
      while (result == ncclInProgress) ncclCommGetAsyncError(rank.comm, &result);
      ASSERT_EQ(result, ncclSuccess) << ncclGetLastError(rank.comm);
      cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking);
      f(rank);
      cudaStreamDestroy(rank.stream);
      if (end) ncclCommDestroy(rank.comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <class T>
T* upload(const std::vector<T>& values) {
  void* data = nullptr;
  EXPECT_EQ(ncclMemAlloc(&data, values.size() * sizeof(T)), ncclSuccess);
  cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
  cudaDeviceSynchronize();
  return static_cast<T*>(data);
}

template <class T>
std::vector<T> download(const T* data, size_t count, cudaStream_t stream) {
  std::vector<T> values(count);
  cudaMemcpyAsync(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost, stream);
  return values;
}

// A graph of one all-reduce, captured on a stream that the capture's own stream waits for.
cudaGraphExec_t capture_all_reduce(Rank& self, float* data) {
  cudaStream_t origin = nullptr;
  cudaEvent_t event = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  EXPECT_EQ(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  cudaEventRecord(event, origin);
  cudaStreamWaitEvent(self.stream, event, 0);
  EXPECT_EQ(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.comm, self.stream), ncclSuccess);
  cudaEventRecord(event, self.stream);
  cudaStreamWaitEvent(origin, event, 0);
  EXPECT_EQ(cudaStreamEndCapture(origin, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  cudaEventDestroy(event);
  cudaStreamDestroy(origin);
  return exec;
}

TEST(NcclTest, CapturedCollectivesRunWithEveryLaunchOfTheGraph) {
  run_ranks(2, [](Rank& self) {
    float* data = upload(std::vector<float>{1.0f});
    cudaGraphExec_t exec = capture_all_reduce(self, data);
    EXPECT_EQ(download(data, 1, self.stream)[0], 1.0f);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(exec, self.stream), cudaSuccess);
    ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.comm, self.stream);
    EXPECT_EQ(download(data, 1, self.stream)[0], 16.0f);
    cudaGraphExecDestroy(exec);
    ncclMemFree(data);
  });
}

TEST(NcclTest, ACommunicatorEndsAfterTheGraphsThatUseIt) {
  run_ranks(
      2,
      [](Rank& self) {
        float* data = upload(std::vector<float>{1.0f});
        cudaGraphExec_t exec = capture_all_reduce(self, data);
        std::atomic<bool> ended = false;
        std::thread end([&] {
          ncclCommAbort(self.comm);
          ended = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_FALSE(ended);
        cudaGraphExecDestroy(exec);
        end.join();
        ncclMemFree(data);
      },
      true, false);
}

TEST(NcclTest, ReducesInPlaceWithEveryOperation) {
  run_ranks(kRanks, [](Rank& self) {
    const std::vector<float> own = {static_cast<float>(self.rank + 1), 2.0f, static_cast<float>(-self.rank)};
    struct Case {
      ncclRedOp_t op;
      std::vector<float> expected;
    };
    float factor = 0.5f;
    ncclRedOp_t scaled;
    ncclRedOpCreatePreMulSum(&scaled, &factor, ncclFloat32, ncclScalarHostImmediate, self.comm);
    for (const Case& test :
         {Case{ncclSum, {10, 8, -6}}, Case{ncclProd, {24, 16, 0}}, Case{ncclMax, {4, 2, 0}},
          Case{ncclMin, {1, 2, -3}}, Case{ncclAvg, {2.5f, 2, -1.5f}}, Case{scaled, {5, 4, -3}}}) {
      float* data = upload(own);
      ASSERT_EQ(ncclAllReduce(data, data, 3, ncclFloat32, test.op, self.comm, self.stream), ncclSuccess);
      EXPECT_EQ(download(data, 3, self.stream), test.expected);
      ncclMemFree(data);
    }
    ncclRedOpDestroy(scaled, self.comm);
  });
}

TEST(NcclTest, MovesBlocks) {
  run_ranks(kRanks, [](Rank& self) {
    const int r = self.rank;
    int32_t* in = upload(std::vector<int32_t>{10 * r, 10 * r + 1, 10 * r + 2, 10 * r + 3});
    int32_t* out = upload(std::vector<int32_t>(4, -1));
    ncclAllGather(in, out, 1, ncclInt32, self.comm, self.stream);
    EXPECT_EQ(download(out, 4, self.stream), (std::vector<int32_t>{0, 10, 20, 30}));
    ncclReduceScatter(in, out, 1, ncclInt32, ncclSum, self.comm, self.stream);
    EXPECT_EQ(download(out, 1, self.stream), std::vector<int32_t>{60 + 4 * r});
    ncclReduce(in, out, 1, ncclInt32, ncclMax, 2, self.comm, self.stream);
    if (r == 2) {
      EXPECT_EQ(download(out, 1, self.stream), std::vector<int32_t>{30});
    }
    ncclBroadcast(in, out, 4, ncclInt32, 3, self.comm, self.stream);
    EXPECT_EQ(download(out, 4, self.stream), (std::vector<int32_t>{30, 31, 32, 33}));
    ncclGroupStart();
    for (int peer = 0; peer < kRanks; ++peer) {
      ncclSend(in + peer, 1, ncclInt32, peer, self.comm, self.stream);
      ncclRecv(out + peer, 1, ncclInt32, peer, self.comm, self.stream);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(download(out, 4, self.stream), (std::vector<int32_t>{r, 10 + r, 20 + r, 30 + r}));
    ncclMemFree(in);
    ncclMemFree(out);
  });
}

TEST(NcclTest, SplitsByColorAndKey) {
  run_ranks(kRanks, [](Rank& self) {
    ncclComm_t half = nullptr;
    ASSERT_EQ(ncclCommSplit(self.comm, self.rank % 2, -self.rank, &half, nullptr), ncclSuccess);
    int rank = -1, size = 0;
    ncclCommUserRank(half, &rank);
    ncclCommCount(half, &size);
    EXPECT_EQ(size, 2);
    EXPECT_EQ(rank, self.rank < 2 ? 1 : 0);
    float* data = upload(std::vector<float>{static_cast<float>(self.rank)});
    ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, half, self.stream);
    EXPECT_EQ(download(data, 1, self.stream)[0], self.rank % 2 == 0 ? 2.0f : 4.0f);
    ncclMemFree(data);
    ncclCommDestroy(half);
  });
}

TEST(NcclTest, CallsThatDoNotBlockAreQueuedWhenTheirStateSaysSo) {
  run_ranks(
      2,
      [](Rank& self) {
        float* data = upload(std::vector<float>{1.0f});
        for (int i = 0; i < 4; ++i) {
          ncclResult_t result = ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.comm, self.stream);
          while (result == ncclInProgress) ncclCommGetAsyncError(self.comm, &result);
          ASSERT_EQ(result, ncclSuccess);
        }
        EXPECT_EQ(download(data, 1, self.stream)[0], 16.0f);
        ncclMemFree(data);
      },
      false);
}

TEST(NcclTest, ARecordBeforeAPutOffCallCoversNothing) {
  sim::record_mistakes(true);
  run_ranks(
      1,
      [](Rank& self) {
        float* data = upload(std::vector<float>{1.0f});
        cudaStream_t other = nullptr;
        cudaEvent_t event = nullptr;
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        for (int i = 0; i < 2; ++i) {  // one of two calls is put off
          ncclResult_t result = ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.comm, self.stream);
          cudaEventRecord(event, self.stream);
          while (result == ncclInProgress) ncclCommGetAsyncError(self.comm, &result);
          cudaStreamWaitEvent(other, event, 0);
          cudaMemsetAsync(data, 0, 4, other);
          cudaDeviceSynchronize();
        }
        cudaStreamDestroy(other);
        cudaEventDestroy(event);
        ncclMemFree(data);
      },
      false);
  EXPECT_THAT(sim::take_mistakes(), ::testing::ElementsAre(::testing::HasSubstr("memset")));
  sim::record_mistakes(false);
}

TEST(NcclTest, RefusesTwoRanksOnOneDevice) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      cudaSetDevice(0);
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, 2, id, r), ncclInvalidUsage);
      EXPECT_THAT(ncclGetLastError(comm), ::testing::HasSubstr("Duplicate GPU"));
      ncclCommAbort(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NcclTest, ALostPeerIsAnAsynchronousErrorAndAbortEndsTheKernel) {
  run_ranks(
      2,
      [](Rank& self) {
        if (self.rank == 1) {
          ncclCommAbort(self.comm);
          return;
        }
        float* data = upload(std::vector<float>{1.0f});
        ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, self.comm, self.stream);
        ncclResult_t state = ncclSuccess;
        while (state == ncclSuccess) ncclCommGetAsyncError(self.comm, &state);
        EXPECT_EQ(state, ncclRemoteError);
        EXPECT_EQ(cudaStreamQuery(self.stream), cudaErrorNotReady);
        ncclCommAbort(self.comm);
        EXPECT_EQ(cudaStreamSynchronize(self.stream), cudaSuccess);
        ncclMemFree(data);
      },
      true, false);
}

TEST(NcclTest, AbortEndsAMeetingThatNobodyComesTo) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  cudaSetDevice(0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST(NcclTest, RegisteredMemoryIsDeregisteredFirst) {
  sim::record_mistakes(true);
  run_ranks(1, [](Rank& self) {
    float* data = upload(std::vector<float>{1.0f});
    void* registration = nullptr;
    ASSERT_EQ(ncclCommRegister(self.comm, data, 4, &registration), ncclSuccess);
    ncclMemFree(data);
    ncclCommDeregister(self.comm, registration);
  });
  EXPECT_THAT(sim::take_mistakes(), ::testing::ElementsAre(::testing::HasSubstr("registered")));
  sim::record_mistakes(false);
}

TEST(NcclTest, LeavesNothingBehind) {
  EXPECT_EQ(sim::leftovers(), "");
}

}  // namespace
}  // namespace rondo
