#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

void wrong_local_arguments(Communicator& comm) {
  std::vector<float> values(10, 1.0f);
  std::vector<int32_t> ints(10, 1);
  const Span floats = span_of(std::span(values));
  const Span integers = span_of(std::span(ints));
  const auto rejects = [](const std::function<void()>& call, const std::string& part) {
    EXPECT_THAT(message_of<InvalidArgument>(call), HasSubstr(part));
  };
  rejects([&] { comm.all_reduce(floats, {values.data(), 9, DType::kF32}, ReduceOp::kSum); }, "10 elements");
  rejects([&] { comm.all_reduce(floats, integers, ReduceOp::kSum); }, "int32");
  rejects([&] { comm.all_reduce(integers, integers, ReduceOp::kAverage); }, "average");
  rejects(
      [&] {
        comm.all_reduce({values.data(), 9, DType::kF32}, {&values[1], 9, DType::kF32}, ReduceOp::kSum);
      },
      "overlap");
  rejects([&] { comm.all_reduce({nullptr, 3, DType::kF32}, floats, ReduceOp::kSum); }, "null");
  rejects([&] { comm.broadcast({values.data(), -1, DType::kF32}, 0); }, "negative");
  rejects([&] { comm.broadcast(floats, comm.size()); }, "root");
  rejects([&] { comm.broadcast(floats, -1); }, "root");
  std::vector<int64_t> counts(static_cast<size_t>(comm.size()) + 1, 1);
  std::vector<float> out(static_cast<size_t>(comm.size()));
  const ConstSpan one{values.data(), 1, DType::kF32};
  rejects([&] { comm.all_gather_v(one, span_of(std::span(out)), counts); }, "counts");
  counts.pop_back();
  rejects([&] { comm.all_gather_v(floats, span_of(std::span(out)), counts); }, "its count is 1");
  counts[0] = -1;
  rejects([&] { comm.all_gather_v(one, span_of(std::span(out)), counts); }, "negative");
  expect_usable(comm);
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
  { const Work dropped = comm.all_reduce(span, span, ReduceOp::kSum); }
  EXPECT_THROW(comm.barrier(), PeerError);
}

constexpr ConformanceCase kCases[] = {
    {"MismatchRaisesEverywhere", mismatch_raises_everywhere},
    {"MismatchInCountsRaisesEverywhere", mismatch_in_counts_raises_everywhere},
    {"MismatchLeavesOthersInFlight", mismatch_leaves_others_in_flight},
    {"WrongLocalArguments", wrong_local_arguments},
    {"PublishedFailureReachesAll", published_failure_reaches_all},
    {"MissedDeadlineIsToldAndStays", missed_deadline_is_told_and_stays},
    {"WorkDroppedInAFailure", work_dropped_in_a_failure},
};

}  // namespace

std::span<const ConformanceCase> error_cases() {
  return kCases;
}

}  // namespace rondo
