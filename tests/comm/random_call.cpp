#include "tests/comm/random_call.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/comm/reduce_case.h"

namespace rondo {
namespace {

constexpr int kKinds = 9;

// Mostly short, sometimes long enough to travel in chunks.
int64_t random_length(std::mt19937_64& random) {
  if (random() % 12 == 0) return 0;
  return static_cast<int64_t>(std::exp(std::uniform_real_distribution<>(0, 10)(random)));
}

Span part(Guarded& buffer, int64_t begin, int64_t count) {
  const Span whole = buffer.span();
  return {static_cast<std::byte*>(whole.data) + begin * dtype_size(whole.dtype), count, whole.dtype};
}

}  // namespace

RandomCall::RandomCall(std::mt19937_64& random, int rank, int size)
    : rank_(rank), size_(size), in_(DType::kU8, 0), out_(DType::kU8, 0) {
  kind_ = static_cast<Kind>(random() % kKinds);
  dtype_ = kAllTypes[random() % std::size(kAllTypes)];
  op_ = kAllOps[random() % std::size(kAllOps)];
  if (op_ == ReduceOp::kAverage && !is_floating(dtype_)) op_ = ReduceOp::kSum;
  root_ = static_cast<int>(random() % static_cast<uint64_t>(size));
  in_place_ = random() % 2 == 0;
  const bool misaligned = random() % 2 == 0;
  key_ = random() % 1000;
  const int parts = kind_ == Kind::kGroup ? 4 : size;
  counts_ = random_parts(random_length(random), parts, random());
  const int64_t total = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  // Room for whatever the kind needs: the whole, or what an all-to-all sends and receives.
  int64_t room = total;
  if (kind_ == Kind::kAllToAll) {
    int64_t sends = 0;
    int64_t receives = 0;
    for (int r = 0; r < size; ++r) {
      sends += sent(rank, r);
      receives += sent(r, rank);
    }
    room = std::max(sends, receives);
  }
  in_ = Guarded(dtype_, room, misaligned);
  out_ = Guarded(dtype_, room, misaligned);
  fill();
}

int64_t RandomCall::before(int rank) const {
  return std::accumulate(counts_.begin(), counts_.begin() + rank, int64_t{0});
}

// Uneven, and nothing between some pairs.
int64_t RandomCall::sent(int from, int to) const {
  const auto pair = static_cast<uint64_t>(from * 5 + to * 3) + key_;
  return pair % 4 == 0 ? 0 : counts_[pair % counts_.size()] / 2 + static_cast<int64_t>(pair % 3);
}

// Exact in every type, order and operation: for products at most one factor is not 1.
double RandomCall::input(int rank, int64_t i) const {
  const auto at = static_cast<uint64_t>(i) + key_;
  if (op_ == ReduceOp::kProduct)
    return at % static_cast<uint64_t>(size_) == static_cast<uint64_t>(rank) ? 2 : 1;
  const bool is_unsigned = dtype_ == DType::kU8 || dtype_ == DType::kU16;
  return static_cast<double>((at * 7 + static_cast<uint64_t>(rank) * 3) % 11) - (is_unsigned ? 0 : 5);
}

double RandomCall::reduced(int64_t i) const {
  double result = input(0, i);
  for (int r = 1; r < size_; ++r) {
    const double next = input(r, i);
    if (op_ == ReduceOp::kMin) result = std::min(result, next);
    if (op_ == ReduceOp::kMax) result = std::max(result, next);
    if (op_ == ReduceOp::kProduct) result *= next;
    if (op_ == ReduceOp::kSum || op_ == ReduceOp::kAverage) result += next;
  }
  if (op_ != ReduceOp::kAverage) return result;
  if (dtype_ == DType::kF64) return result / size_;
  Guarded rounded(dtype_, 1);
  rounded.set(0, static_cast<double>(static_cast<float>(result) / static_cast<float>(size_)));
  return rounded.get(0);
}

double RandomCall::moved(int from, int to, int64_t i) const {
  return static_cast<double>((static_cast<uint64_t>(from * 17 + to * 5 + i) + key_) % 113);
}

void RandomCall::fill() {
  const int64_t room = in_.span().count;
  switch (kind_) {
    case Kind::kAllReduce:
    case Kind::kGroup:
    case Kind::kReduceScatter:
      for (int64_t i = 0; i < room; ++i) in_.set(i, input(rank_, i));
      break;
    case Kind::kBroadcast:
      for (int64_t i = 0; i < room; ++i) out_.set(i, rank_ == root_ ? moved(root_, 0, i) : 1);
      break;
    case Kind::kAllGather:
    case Kind::kGather: {
      // In place, the block is in the output.
      Guarded& place = in_place_ ? out_ : in_;
      for (int64_t i = 0; i < own(); ++i) place.set(before(rank_) + i, moved(rank_, 0, i));
      break;
    }
    case Kind::kScatter:
      for (int r = 0; r < size_ && rank_ == root_; ++r) {
        for (int64_t i = 0; i < counts_[static_cast<size_t>(r)]; ++i)
          in_.set(before(r) + i, moved(root_, r, i));
      }
      break;
    case Kind::kAllToAll:
      for (int r = 0, at = 0; r < size_; ++r) {
        for (int64_t i = 0; i < sent(rank_, r); ++i) in_.set(at++, moved(rank_, r, i));
      }
      break;
    case Kind::kBarrier:
      break;
  }
}

Work RandomCall::start_all_to_all(Communicator& comm) {
  std::vector<int64_t> sends;
  std::vector<int64_t> receives;
  for (int r = 0; r < size_; ++r) {
    sends.push_back(sent(rank_, r));
    receives.push_back(sent(r, rank_));
  }
  const auto sum = [](const std::vector<int64_t>& v) {
    return std::accumulate(v.begin(), v.end(), int64_t{0});
  };
  return comm.all_to_all_v(part(in_, 0, sum(sends)), part(in_place_ ? in_ : out_, 0, sum(receives)), sends,
                           receives);
}

Work RandomCall::start(Communicator& comm) {
  const int64_t begin = kind_ == Kind::kGroup ? 0 : before(rank_);
  Guarded& result = in_place_ ? in_ : out_;
  switch (kind_) {
    case Kind::kAllReduce:
      return comm.all_reduce(in_.span(), result.span(), op_);
    case Kind::kGroup: {
      std::vector<SpanPair> pairs;
      for (size_t g = 0; g < counts_.size(); ++g) {
        const int64_t at = before(static_cast<int>(g));
        pairs.push_back({part(in_, at, counts_[g]), part(result, at, counts_[g])});
      }
      return comm.all_reduce_group(pairs, op_);
    }
    case Kind::kReduceScatter:
      return comm.reduce_scatter(in_.span(), part(result, begin, own()), counts_, op_);
    case Kind::kBroadcast:
      return comm.broadcast(out_.span(), root_);
    case Kind::kAllGather:
      return comm.all_gather_v(part(in_place_ ? out_ : in_, begin, own()), out_.span(), counts_);
    case Kind::kAllToAll:
      return start_all_to_all(comm);
    case Kind::kGather:
      return comm.gather_v(part(in_place_ ? out_ : in_, begin, own()), out_.span(), counts_, root_);
    case Kind::kScatter:
      return comm.scatter_v(in_.span(), part(in_place_ && rank_ == root_ ? in_ : out_, begin, own()), counts_,
                            root_);
    case Kind::kBarrier:
      break;
  }
  return comm.barrier();
}

// The elements that the call writes, in order.
std::vector<double> RandomCall::expected() const {
  std::vector<double> values;
  const int64_t total = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  switch (kind_) {
    case Kind::kAllReduce:
    case Kind::kGroup:
      for (int64_t i = 0; i < total; ++i) values.push_back(reduced(i));
      break;
    case Kind::kReduceScatter:
      for (int64_t i = 0; i < own(); ++i) values.push_back(reduced(before(rank_) + i));
      break;
    case Kind::kBroadcast:
      for (int64_t i = 0; i < total; ++i) values.push_back(moved(root_, 0, i));
      break;
    case Kind::kGather:
      if (rank_ != root_) break;
      [[fallthrough]];
    case Kind::kAllGather:
      for (int r = 0; r < size_; ++r) {
        for (int64_t i = 0; i < counts_[static_cast<size_t>(r)]; ++i) values.push_back(moved(r, 0, i));
      }
      break;
    case Kind::kScatter:
      for (int64_t i = 0; i < own(); ++i) values.push_back(moved(root_, rank_, i));
      break;
    case Kind::kAllToAll:
      for (int r = 0; r < size_; ++r) {
        for (int64_t i = 0; i < sent(r, rank_); ++i) values.push_back(moved(r, rank_, i));
      }
      break;
    case Kind::kBarrier:
      break;
  }
  return values;
}

void RandomCall::check() {
  const bool in_input =
      in_place_ && (kind_ == Kind::kAllReduce || kind_ == Kind::kGroup || kind_ == Kind::kReduceScatter ||
                    kind_ == Kind::kAllToAll || (kind_ == Kind::kScatter && rank_ == root_));
  const bool block = kind_ == Kind::kReduceScatter || kind_ == Kind::kScatter;
  const int64_t offset = block ? before(rank_) : 0;
  Guarded& result = in_input ? in_ : out_;
  const std::vector<double> wanted = expected();
  int64_t wrong = 0;
  for (size_t i = 0; i < wanted.size(); ++i)
    wrong += result.get(offset + static_cast<int64_t>(i)) != wanted[i];
  EXPECT_EQ(wrong, 0) << text() << " on rank " << rank_ << " of " << size_;
  in_.expect_sentinels();
  out_.expect_sentinels();
}

std::string RandomCall::text() const {
  constexpr const char* kNames[kKinds] = {"all_reduce", "all_reduce_group", "reduce_scatter",
                                          "broadcast",  "all_gather_v",     "all_to_all_v",
                                          "gather_v",   "scatter_v",        "barrier"};
  return fmt::format("{} of {} {}, operation {}, root {}{}", kNames[static_cast<size_t>(kind_)],
                     std::accumulate(counts_.begin(), counts_.end(), int64_t{0}), dtype_name(dtype_),
                     static_cast<int>(op_), root_, in_place_ ? ", in place" : "");
}

}  // namespace rondo
