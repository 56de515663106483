// Collectives that are ordered by streams alone, calls of growing size among them: every wait inside of the
// communicators counts, and the double checks it.
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/comm/staged/staged_communicator.h"
#include "runtime/launch/gpu_loader.h"

namespace rondo {
namespace {

constexpr int kRanks = 2;

// One rank with what its collectives run on.
struct Place {
  Communicator& host;
  Device& device;
  Communicator& comm;
  Stream& stream;

  // Device memory full of a value, as of the stream.
  Buffer filled(int64_t count, float value) {
    Buffer pinned = device.allocate_host(4 * count);
    std::fill_n(pinned.as<float>(), count, value);
    Buffer buffer = device.allocate(4 * count);
    stream.copy(buffer.data(), pinned.data(), 4 * count);
    kept.push_back(std::move(pinned));
    return buffer;
  }
  std::vector<float> values(const Buffer& buffer) {
    std::vector<float> found(static_cast<size_t>(buffer.bytes() / 4));
    stream.copy(found.data(), buffer.data(), buffer.bytes());
    stream.synchronize();
    return found;
  }
  std::unique_ptr<Event> mark() {
    auto event = device.make_event();
    stream.record(*event);
    return event;
  }
  std::vector<Buffer> kept;
};

// f(place) for the ranks, over NCCL on a GPU each or staged through the host on one.
template <class Run>
void on_gpus(bool staged, const Run& f) {
  static const FoundGpus found = find_gpus();
  ASSERT_NE(found.module, nullptr) << found.reason;
  run_ranks(kRanks, [&](Communicator& host) {
    const auto device = found.module->make_device(staged ? 0 : host.rank());
    const auto comm =
        staged ? make_staged_communicator(host, *device) : found.module->make_communicator(host, *device, {});
    const auto stream = device->make_stream();
    Place place{host, *device, *comm, *stream, {}};
    f(place);
    stream->synchronize();
  });
}

Span span(const Buffer& buffer) {
  return {buffer.data(), buffer.bytes() / 4, DType::kF32};
}

class StreamOrder : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(NcclAndStaged, StreamOrder, testing::Bool());

TEST_P(StreamOrder, CollectivesStartBehindTheirEventAndStreamsBehindThem) {
  on_gpus(GetParam(), [](Place& place) {
    const int64_t count = 1000;
    for (int round = 0; round < 3; ++round) {
      const auto value = static_cast<float>(place.host.rank() + round);
      const Buffer one = place.filled(count, value), two = place.filled(count, value);
      const auto ready = place.mark();
      const SpanPair pair{span(two), span(two)};
      place.comm.all_reduce(span(one), span(one), ReduceOp::kSum, {.after = ready.get()})
          .order_before(place.stream);
      place.comm.all_reduce_group({&pair, 1}, ReduceOp::kMax, {.after = ready.get()})
          .order_before(place.stream);
      EXPECT_EQ(place.values(one), std::vector<float>(count, static_cast<float>(2 * round + 1)));
      EXPECT_EQ(place.values(two), std::vector<float>(count, static_cast<float>(round + 1)));
    }
  });
}

// Exchanges in place of more and more elements, which want memory between.
void exchange_more_and_more(Place& place, std::vector<Buffer>& all) {
  for (const int64_t count : {2000, 20000, 100000}) {
    all.push_back(place.filled(count, static_cast<float>(place.host.rank())));
    const auto ready = place.mark();
    place.comm.all_to_all(span(all.back()), span(all.back()), {.after = ready.get()})
        .order_before(place.stream);
  }
}

void expect_exchanged(Place& place, const std::vector<Buffer>& all) {
  for (const Buffer& buffer : all) {
    const auto found = place.values(buffer);
    EXPECT_EQ(found.front(), 0.0f);
    EXPECT_EQ(found.back(), 1.0f);
  }
}

TEST_P(StreamOrder, MemoryBetweenGrowsBehindTheWorkOnIt) {
  on_gpus(GetParam(), [](Place& place) {
    std::vector<Buffer> all;
    exchange_more_and_more(place, all);
    expect_exchanged(place, all);
  });
}

// The memory of a call is in use when the next one wants more, since the other rank comes only when all are
// queued: the host may not wait for it, and nobody else gets it.
TEST(NcclOrder, MemoryBetweenGrowsWithoutAWaitAndIsNotGivenBackInUse) {
  on_gpus(false, [](Place& place) {
    std::vector<Buffer> all;
    if (place.host.rank() == 1) place.host.barrier().wait();
    exchange_more_and_more(place, all);
    const Buffer other = place.device.allocate(8000);
    if (place.host.rank() == 0) place.host.barrier().wait();
    expect_exchanged(place, all);
    EXPECT_EQ(place.values(other), std::vector<float>(2000, 0.0f));
  });
}

}  // namespace
}  // namespace rondo
