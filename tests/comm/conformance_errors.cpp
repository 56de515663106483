#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "tests/comm/conformance.h"

namespace rondo {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

// The message of the E that `call` throws; a failure and an empty text when it throws none.
template <class E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

void expect_usable(Communicator& comm) {
  std::vector<float> values(25000, 1.0f);
  const Span span = span_of(std::span(values));
  comm.all_reduce(span, span, ReduceOp::kSum, {.label = "afterwards"}).wait();
  EXPECT_EQ(values.back(), static_cast<float>(comm.size()));
}

// The rank that calls something else than the others.
bool odd_one_out(const Communicator& comm) {
  return comm.rank() == comm.size() - 1;
}

// Waits for a mismatching call; checks that all ranks get the same text, naming the last rank, and can go on.
void expect_mismatch(Communicator& comm, const std::function<Work()>& call,
                     const std::vector<std::string>& parts) {
  const std::string text = message_of<MismatchError>([&] { call().wait(); });
  for (const std::string& part : parts) EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text,
              AllOf(HasSubstr("rank 0 ("), HasSubstr("rank " + std::to_string(comm.size() - 1) + " (")));
  for (const std::string& theirs : all_gather_strings(comm, text)) EXPECT_EQ(theirs, text);
  expect_usable(comm);
}

void mismatch_raises_everywhere(Communicator& comm) {
  if (comm.size() == 1) return;
  const bool odd = odd_one_out(comm);
  std::vector<float> values(100000, 1.0f);
  const auto floats = [&](int64_t count) { return Span{values.data(), count, DType::kF32}; };
  const auto reduce = [&](Span span, ReduceOp op, std::string_view label) {
    return comm.all_reduce(span, span, op, {.label = label});
  };
  // Small against small, small against large, large against large.
  for (const auto& [a, b] :
       {std::pair(10, 11), std::pair(10, 100000), std::pair(90000, 100000), std::pair(0, 1)}) {
    expect_mismatch(comm, [&, n = odd ? b : a] { return reduce(floats(n), ReduceOp::kSum, "size"); },
                    {std::to_string(a) + " float32", std::to_string(b) + " float32", "\"size\""});
  }
  const Span ints{values.data(), 10, DType::kI32};
  expect_mismatch(comm, [&] { return reduce(odd ? ints : floats(10), ReduceOp::kSum, "type"); },
                  {"10 float32", "10 int32"});
  expect_mismatch(comm, [&] { return reduce(floats(50000), odd ? ReduceOp::kMax : ReduceOp::kSum, "op"); },
                  {"sum of 50000", "maximum of 50000"});
  expect_mismatch(comm, [&] { return comm.broadcast(floats(20), odd ? 1 : 0); },
                  {"from rank 0", "from rank 1"});
  expect_mismatch(comm, [&] { return reduce(floats(7), ReduceOp::kSum, odd ? "b" : "a"); },
                  {"\"a\"", "\"b\""});
  expect_mismatch(comm, [&] { return odd ? comm.barrier() : reduce(floats(70000), ReduceOp::kSum, ""); },
                  {"barrier", "all_reduce"});
}

void mismatch_in_counts_raises_everywhere(Communicator& comm) {
  if (comm.size() == 1) return;
  // The same total, divided otherwise: every rank's own arguments are in order.
  const auto size = static_cast<size_t>(comm.size());
  std::vector<int64_t> counts(size, 4);
  if (odd_one_out(comm)) {
    counts[0] = 8;
    counts[1] = 0;
  }
  std::vector<float> all(size * 4);
  const std::vector<float> mine(static_cast<size_t>(counts[static_cast<size_t>(comm.rank())]), 1.0f);
  const auto gather = [&] {
    return comm.all_gather_v(span_of(std::span(mine)), span_of(std::span(all)), counts);
  };
  expect_mismatch(comm, gather, {"all_gather_v", "counts"});
}

void mismatch_of_scales_and_groups(Communicator& comm) {
  if (comm.size() == 1) return;
  const bool odd = odd_one_out(comm);
  std::vector<float> values(60000, 1.0f);
  const Span all = span_of(std::span(values));
  const auto reduce = [&](double prescale, double postscale) {
    return comm.all_reduce(all, all, ReduceOp::kSum, {.prescale = prescale, .postscale = postscale});
  };
  expect_mismatch(comm, [&] { return reduce(odd ? 0.5 : 0.25, 1); }, {"prescale 0.5", "prescale 0.25"});
  expect_mismatch(comm, [&] { return reduce(1, odd ? 1 : 3); }, {"postscale 3"});
  // The same total in other parts, and one part more that is empty.
  const auto part = [&](int64_t begin, int64_t end) {
    const Span span{&values[static_cast<size_t>(begin)], end - begin, DType::kF32};
    return SpanPair{span, span};
  };
  const std::vector<SpanPair> two{part(0, 100), part(100, 50000)};
  const std::vector<SpanPair> shifted{part(0, 101), part(101, 50000)};
  const std::vector<SpanPair> three{part(0, 100), part(100, 50000), part(50000, 50000)};
  for (const auto& other : {shifted, three}) {
    expect_mismatch(comm, [&] { return comm.all_reduce_group(odd ? other : two, ReduceOp::kSum); },
                    {"all_reduce_group", "50000 float32"});
  }
  expect_mismatch(comm, [&] { return odd ? reduce(1, 1) : comm.all_reduce_group(two, ReduceOp::kSum); },
                  {"all_reduce ", "all_reduce_group"});
}

void mismatch_of_roots_and_types(Communicator& comm) {
  if (comm.size() == 1) return;
  const bool odd = odd_one_out(comm);
  const auto size = static_cast<size_t>(comm.size());
  for (const size_t each : {size_t{2}, size_t{30000}}) {
    std::vector<int32_t> mine(each);
    std::vector<int32_t> all(each * size);
    const Span block = span_of(std::span(mine));
    const Span blocks = span_of(std::span(all));
    const auto as = [odd](Span span) { return Span{span.data, span.count, odd ? DType::kF32 : span.dtype}; };
    const int root = odd ? 1 : 0;
    expect_mismatch(comm, [&] { return comm.gather(block, blocks, root); }, {"to rank 0", "to rank 1"});
    expect_mismatch(comm, [&] { return comm.scatter(blocks, block, root); }, {"from rank 0", "from rank 1"});
    const std::vector<std::string> types{"int32", "float32"};
    expect_mismatch(
        comm, [&] { return comm.gather(as(block), as(blocks), 0); }, types);
    expect_mismatch(
        comm, [&] { return comm.scatter(as(blocks), as(block), 0); }, types);
    expect_mismatch(
        comm, [&] { return comm.all_gather(as(block), as(blocks)); }, types);
    expect_mismatch(
        comm, [&] { return comm.all_to_all(as(blocks), as(blocks)); }, types);
    expect_mismatch(
        comm, [&] { return comm.broadcast(as(blocks), 0); }, types);
    const std::vector<int64_t> counts(size, static_cast<int64_t>(each));
    expect_mismatch(
        comm, [&] { return comm.reduce_scatter(as(blocks), as(block), counts, ReduceOp::kMax); }, types);
  }
}

void mismatch_of_block_sizes(Communicator& comm) {
  if (comm.size() == 1) return;
  const auto size = static_cast<size_t>(comm.size());
  const size_t each = odd_one_out(comm) ? 5001 : 5000;
  std::vector<float> mine(each);
  std::vector<float> all(each * size);
  const Span block = span_of(std::span(mine));
  const Span blocks = span_of(std::span(all));
  const std::vector<std::string> totals{std::to_string(5000 * size), std::to_string(5001 * size)};
  expect_mismatch(
      comm, [&] { return comm.all_gather(block, blocks); }, totals);
  expect_mismatch(
      comm, [&] { return comm.gather(block, blocks, 0); }, totals);
  expect_mismatch(
      comm, [&] { return comm.scatter(blocks, block, 0); }, totals);
  const std::vector<int64_t> counts(size, static_cast<int64_t>(each));
  expect_mismatch(
      comm, [&] { return comm.reduce_scatter(blocks, block, counts, ReduceOp::kSum); }, totals);
}

void mismatch_of_splits(Communicator& comm) {
  if (comm.size() == 1) return;
  // Rank 0 and the last do not agree about what goes from one to the other; everybody hears of it.
  for (const int64_t each : {int64_t{3}, int64_t{20000}}) {
    const auto size = static_cast<size_t>(comm.size());
    std::vector<int64_t> sent(size, each);
    std::vector<int64_t> received(size, each);
    if (odd_one_out(comm)) {
      received[0] += 2;
    }
    std::vector<float> in(size * static_cast<size_t>(each));
    std::vector<float> out(size * static_cast<size_t>(each) + (odd_one_out(comm) ? 2 : 0), 7.0f);
    expect_mismatch(
        comm,
        [&] { return comm.all_to_all_v(span_of(std::span(in)), span_of(std::span(out)), sent, received); },
        {"all_to_all_v", "sends " + std::to_string(each) + " elements",
         "expects " + std::to_string(each + 2)});
    EXPECT_EQ(std::count(out.begin(), out.end(), 7.0f), static_cast<ptrdiff_t>(out.size()));
  }
}

void mismatch_leaves_others_in_flight(Communicator& comm) {
  if (comm.size() == 1) return;
  std::vector<float> a(60000, 1.0f);
  std::vector<float> b(60000, 1.0f);
  std::vector<float> c(60000, 1.0f);
  const auto start = [&](std::vector<float>& v, ReduceOp op) {
    const Span span = span_of(std::span(v));
    return comm.all_reduce(span, span, op);
  };
  Work first = start(a, ReduceOp::kSum);
  Work second = start(b, odd_one_out(comm) ? ReduceOp::kMin : ReduceOp::kMax);
  Work third = start(c, ReduceOp::kSum);
  third.wait();
  EXPECT_THROW(second.wait(), MismatchError);
  EXPECT_THROW(second.wait(), MismatchError);  // repeats it
  first.wait();
  EXPECT_EQ(a.back(), static_cast<float>(comm.size()));
  EXPECT_EQ(c.back(), static_cast<float>(comm.size()));
}

void published_failure_reaches_all(Communicator& comm) {
  expect_usable(comm);
  const auto half = comm.split(comm.rank() % 2, 0);
  if (odd_one_out(comm)) {
    comm.barrier().wait();  // the others have come this far, too
    comm.publish_failure("the disk is full");
    comm.publish_failure("and something else");  // the first one counts
  }
  const auto label = std::string("rank ") + std::to_string(comm.size() - 1);
  const auto told = AllOf(HasSubstr(label), HasSubstr("the disk is full"));
  std::vector<float> values(100000, 1.0f);
  const Span span = span_of(std::span(values));
  bool met = odd_one_out(comm);
  const auto reduce = [&] {
    if (!std::exchange(met, true)) comm.barrier().wait();
    for (;;) comm.all_reduce(span, span, ReduceOp::kSum, {.deadline = milliseconds(20000)}).wait();
  };
  EXPECT_THAT(message_of<PeerError>(reduce), told);
  EXPECT_THAT(message_of<PeerError>(reduce), told);  // and again
  EXPECT_THAT(message_of<PeerError>([&] { comm.barrier().wait(); }), told);
  // A rank that cannot go on is missing in every set.
  EXPECT_THAT(message_of<PeerError>([&] { half->barrier().wait(); }), told);
}

void missed_deadline_is_told_and_stays(Communicator& comm) {
  if (comm.size() == 1) return;
  expect_usable(comm);
  std::vector<float> values(1000, 1.0f);
  const Span span = span_of(std::span(values));
  std::string text;
  if (odd_one_out(comm)) {
    comm.barrier().wait();
    std::this_thread::sleep_for(milliseconds(600));
    // By now the others have given up. It learns so from them, not from its own deadline; what they sent
    // before may still complete a call here.
    text = message_of<PeerError>([&] {
      for (;;) comm.all_reduce(span, span, ReduceOp::kSum, {.label = "grads/7"}).wait();
    });
  } else {
    const auto begin = std::chrono::steady_clock::now();
    text = message_of<PeerError>([&] {
      comm.barrier().wait();  // all are here: who is late now is late for the next
      comm.all_reduce(span, span, ReduceOp::kSum, {.label = "grads/7", .deadline = milliseconds(150)}).wait();
    });
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(100));
  }
  EXPECT_THAT(text, AllOf(HasSubstr("all_reduce #2 \"grads/7\""), HasSubstr("4000 bytes"),
                          HasSubstr("150 ms"), HasSubstr("waited for rank")));
  const std::string again = message_of<PeerError>([&] { comm.barrier().wait(); });
  EXPECT_EQ(again, text);
}

void work_dropped_in_a_failure(Communicator& comm) {
  if (comm.size() == 1) return;
  std::vector<float> values(100000, 1.0f);
  const Span span = span_of(std::span(values));
  if (odd_one_out(comm)) {
    std::this_thread::sleep_for(milliseconds(20));
    comm.publish_failure("gone");
    return;
  }
  try {
    const Work dropped = comm.all_reduce(span, span, ReduceOp::kSum);
  } catch (const PeerError&) {
    // This rank came late.
  }
  EXPECT_THROW(comm.barrier(), PeerError);
}

constexpr ConformanceCase kCases[] = {
    {"MismatchRaisesEverywhere", mismatch_raises_everywhere},
    {"MismatchInCountsRaisesEverywhere", mismatch_in_counts_raises_everywhere},
    {"MismatchOfScalesAndGroups", mismatch_of_scales_and_groups},
    {"MismatchOfRootsAndTypes", mismatch_of_roots_and_types},
    {"MismatchOfBlockSizes", mismatch_of_block_sizes},
    {"MismatchOfSplits", mismatch_of_splits},
    {"MismatchLeavesOthersInFlight", mismatch_leaves_others_in_flight},
    {"PublishedFailureReachesAll", published_failure_reaches_all},
    {"MissedDeadlineIsToldAndStays", missed_deadline_is_told_and_stays},
    {"WorkDroppedInAFailure", work_dropped_in_a_failure},
};

}  // namespace

std::span<const ConformanceCase> error_cases() {
  return kCases;
}

}  // namespace rondo
