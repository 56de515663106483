#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/comm/communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/reduce_case.h"
#include "tests/comm/values.h"

namespace rondo {
namespace {

// Element i of what rank `from` gives to rank `to`; exact in every type.
double moved_value(int from, int to, int64_t i) {
  return static_cast<double>((from * 31 + to * 7 + i) % 101);
}

void* element(Span span, int64_t i) {
  return static_cast<std::byte*>(span.data) + i * dtype_size(span.dtype);
}

int64_t before(const std::vector<int64_t>& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void broadcast_from_every_root(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    for (const int64_t count : {0, 1, 5, 1000, 33333, 200003}) {
      for (const DType dtype : {DType::kU8, DType::kF32}) {
        Guarded buffer(dtype, count, count % 2 == 1);
        for (int64_t i = 0; i < count; ++i)
          buffer.set(i, comm.rank() == root ? static_cast<double>(i % 101) : 7);
        comm.broadcast(buffer.span(), root, {.label = "weights"}).wait();
        int64_t wrong = 0;
        for (int64_t i = 0; i < count; ++i) wrong += buffer.get(i) != static_cast<double>(i % 101);
        EXPECT_EQ(wrong, 0) << "root " << root << " count " << count;
        buffer.expect_sentinels();
      }
    }
  }
}

struct MoveCase {
  DType dtype = DType::kF32;
  std::vector<int64_t> counts;
  bool in_place = false;
};

// What all_gather_v, and gather_v on the root, leave in `out`.
void expect_gathered(Guarded& out, const MoveCase& c) {
  int64_t at = 0;
  int64_t wrong = 0;
  for (size_t r = 0; r < c.counts.size(); ++r) {
    for (int64_t i = 0; i < c.counts[r]; ++i)
      wrong += out.get(at++) != moved_value(static_cast<int>(r), 0, i);
  }
  EXPECT_EQ(wrong, 0) << at << " elements of " << dtype_name(c.dtype) << (c.in_place ? " in place" : "");
  out.expect_sentinels();
}

// all_gather_v for root -1, else gather_v.
void check_gather(Communicator& comm, const MoveCase& c, int root = -1) {
  const int64_t own = c.counts[static_cast<size_t>(comm.rank())];
  const bool receives = root < 0 || comm.rank() == root;
  Guarded in(c.dtype, own, true);
  Guarded out(c.dtype, receives ? total(c.counts) : 0, true);
  const bool in_place = c.in_place && receives;
  for (int64_t i = 0; i < own; ++i) {
    in.set(i, moved_value(comm.rank(), 0, i));
    if (in_place) out.set(before(c.counts, comm.rank()) + i, moved_value(comm.rank(), 0, i));
  }
  ConstSpan input = in.span();
  if (in_place) input.data = element(out.span(), before(c.counts, comm.rank()));
  if (root < 0) {
    comm.all_gather_v(input, out.span(), c.counts, {.label = "gather"}).wait();
  } else {
    comm.gather_v(input, out.span(), c.counts, root, {.label = "gather"}).wait();
  }
  if (receives) expect_gathered(out, c);
  in.expect_sentinels();
}

void check_scatter(Communicator& comm, const MoveCase& c, int root) {
  const int64_t own = c.counts[static_cast<size_t>(comm.rank())];
  const bool is_root = comm.rank() == root;
  Guarded in(c.dtype, is_root ? total(c.counts) : 0, true);
  Guarded out(c.dtype, own, true);
  for (int r = 0; is_root && r < comm.size(); ++r) {
    for (int64_t i = 0; i < c.counts[static_cast<size_t>(r)]; ++i) {
      in.set(before(c.counts, r) + i, moved_value(root, r, i));
    }
  }
  const bool in_place = c.in_place && is_root;
  const int64_t offset = before(c.counts, comm.rank());
  Span result = out.span();
  if (in_place) result.data = element(in.span(), offset);
  comm.scatter_v(in.span(), result, c.counts, root, {.label = "scatter"}).wait();
  int64_t wrong = 0;
  for (int64_t i = 0; i < own; ++i) {
    wrong += (in_place ? in.get(offset + i) : out.get(i)) != moved_value(root, comm.rank(), i);
  }
  EXPECT_EQ(wrong, 0) << own << " elements of " << dtype_name(c.dtype) << (in_place ? " in place" : "");
  in.expect_sentinels();
  out.expect_sentinels();
}

// counts[from][to]
using Matrix = std::vector<std::vector<int64_t>>;

void check_all_to_all(Communicator& comm, DType dtype, const Matrix& counts, bool in_place) {
  const std::vector<int64_t>& sent = counts[static_cast<size_t>(comm.rank())];
  std::vector<int64_t> received;
  for (const auto& row : counts) received.push_back(row[static_cast<size_t>(comm.rank())]);
  Guarded in(dtype, in_place ? std::max(total(sent), total(received)) : total(sent), true);
  Guarded out(dtype, total(received), true);
  for (int r = 0; r < comm.size(); ++r) {
    for (int64_t i = 0; i < sent[static_cast<size_t>(r)]; ++i) {
      in.set(before(sent, r) + i, moved_value(comm.rank(), r, i));
    }
  }
  ConstSpan input = in.span();
  input.count = total(sent);
  Guarded& result = in_place ? in : out;
  Span output = result.span();
  output.count = total(received);
  comm.all_to_all_v(input, output, sent, received, {.label = "shuffle"}).wait();
  int64_t wrong = 0;
  for (int r = 0; r < comm.size(); ++r) {
    for (int64_t i = 0; i < received[static_cast<size_t>(r)]; ++i) {
      wrong += result.get(before(received, r) + i) != moved_value(r, comm.rank(), i);
    }
  }
  EXPECT_EQ(wrong, 0) << total(received) << " elements of " << dtype_name(dtype)
                      << (in_place ? " in place" : "");
  for (int64_t i = 0; !in_place && i < total(sent); i += 97) {
    ASSERT_EQ(in.get(i), [&] {
      int r = 0;
      while (before(sent, r + 1) <= i) ++r;
      return moved_value(comm.rank(), r, i - before(sent, r));
    }());
  }
  in.expect_sentinels();
  out.expect_sentinels();
}

std::vector<int64_t> random_counts(std::mt19937_64& random, int size, int64_t limit) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) {
    counts.push_back(random() % 5 == 0 ? 0
                                       : static_cast<int64_t>(random() % static_cast<uint64_t>(limit + 1)));
  }
  return counts;
}

void all_gather_of_uneven_blocks(Communicator& comm) {
  std::mt19937_64 random(11);  // the same on all ranks
  for (const int64_t scale : {0, 1, 3, 500, 60000}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      const std::vector<int64_t> counts = random_counts(random, comm.size(), scale);
      check_gather(comm, {DType::kF32, counts, repeat == 1});
      check_gather(comm, {DType::kU8, counts, repeat == 2});
    }
  }
  std::vector<int64_t> one_only(static_cast<size_t>(comm.size()), 0);
  one_only.back() = 50000;
  check_gather(comm, {DType::kI64, one_only, false});
}

void moves_of_every_type(Communicator& comm) {
  for (const DType dtype : kAllTypes) {
    for (const int64_t each : {int64_t{3}, int64_t{12007}}) {
      const MoveCase c{dtype, std::vector<int64_t>(static_cast<size_t>(comm.size()), each), each == 3};
      check_gather(comm, c);
      check_gather(comm, c, comm.size() - 1);
      check_scatter(comm, c, 0);
      check_all_to_all(comm, dtype, Matrix(c.counts.size(), c.counts), c.in_place);
    }
  }
}

void equal_forms(Communicator& comm) {
  const auto size = static_cast<size_t>(comm.size());
  for (const size_t each : {size_t{0}, size_t{1}, size_t{700}, size_t{30000}}) {
    std::vector<int32_t> mine(each, comm.rank());
    std::vector<int32_t> all(each * size, -1);
    const auto expect_all = [&](const char* what) {
      for (size_t i = 0; i < all.size(); i += 13) ASSERT_EQ(all[i], static_cast<int>(i / each)) << what;
    };
    comm.all_gather(span_of(std::span(mine)), span_of(std::span(all))).wait();
    expect_all("all_gather");
    const int root = comm.size() / 2;
    std::fill(all.begin(), all.end(), -1);
    comm.gather(span_of(std::span(mine)), comm.rank() == root ? span_of(std::span(all)) : Span{}, root)
        .wait();
    if (comm.rank() == root) expect_all("gather");
    std::fill(mine.begin(), mine.end(), -1);
    comm.scatter(comm.rank() == root ? span_of(std::span(all)) : Span{}, span_of(std::span(mine)), root)
        .wait();
    EXPECT_EQ(std::count(mine.begin(), mine.end(), comm.rank()), static_cast<ptrdiff_t>(each));
    std::fill(all.begin(), all.end(), comm.rank());
    const Span span = span_of(std::span(all));
    comm.all_to_all(span, span).wait();
    expect_all("all_to_all");
  }
}

void gather_and_scatter_with_every_root(Communicator& comm) {
  std::mt19937_64 random(13);
  for (int root = 0; root < comm.size(); ++root) {
    for (const int64_t scale : {1, 40, 30000}) {
      const MoveCase c{DType::kI16, random_counts(random, comm.size(), scale), root % 2 == 0};
      check_gather(comm, c, root);
      check_scatter(comm, c, root);
    }
  }
}

void all_to_all_of_uneven_blocks(Communicator& comm) {
  const auto size = static_cast<size_t>(comm.size());
  // Rank r sends r+1 elements to each: everybody receives 1, 2, ... of them.
  Matrix growing;
  for (size_t r = 0; r < size; ++r) growing.emplace_back(size, static_cast<int64_t>(r) + 1);
  check_all_to_all(comm, DType::kF32, growing, false);
  // Nothing from one half of the ranks.
  Matrix half(size, std::vector<int64_t>(size, 0));
  for (size_t r = 0; r < size; r += 2) half[r].assign(size, 9000);
  check_all_to_all(comm, DType::kI32, half, false);
  check_all_to_all(comm, DType::kI32, Matrix(size, std::vector<int64_t>(size, 0)), false);
  std::mt19937_64 random(17);
  for (const int64_t scale : {2, 100, 20000}) {
    for (const bool in_place : {false, true}) {
      Matrix counts;
      for (size_t r = 0; r < size; ++r) counts.push_back(random_counts(random, comm.size(), scale));
      check_all_to_all(comm, DType::kF64, counts, in_place);
      check_all_to_all(comm, DType::kU8, counts, in_place);
    }
  }
}

constexpr ConformanceCase kCases[] = {
    {"BroadcastFromEveryRoot", broadcast_from_every_root},
    {"AllGatherOfUnevenBlocks", all_gather_of_uneven_blocks},
    {"MovesOfEveryType", moves_of_every_type},
    {"EqualForms", equal_forms},
    {"GatherAndScatterWithEveryRoot", gather_and_scatter_with_every_root},
    {"AllToAllOfUnevenBlocks", all_to_all_of_uneven_blocks},
};

}  // namespace

std::span<const ConformanceCase> move_cases() {
  return kCases;
}

}  // namespace rondo
