#include "runtime/comm/host/chunk_plan.h"

#include <algorithm>

namespace rondo {
namespace {

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

void ChunkPlan::begin(Kind kind, int rank, int size, int64_t element_bytes, int64_t chunk_bytes) {
  kind_ = kind;
  rank_ = rank;
  size_ = size;
  chunk_bytes_ = std::max<int64_t>(1, chunk_bytes / element_bytes) * element_bytes;
}

void ChunkPlan::cut_evenly(int64_t count, int64_t element_bytes) {
  begins_.clear();
  const int64_t each = count / size_;
  const int64_t longer = count % size_;  // that many segments have one element more
  for (int64_t g = 0; g <= size_; ++g) begins_.push_back((g * each + std::min(g, longer)) * element_bytes);
  chunks_ = divide_up((each + (longer > 0 ? 1 : 0)) * element_bytes, chunk_bytes_);
}

void ChunkPlan::cut_at(std::span<const int64_t> counts, int64_t element_bytes) {
  begins_.assign(1, 0);
  int64_t longest = 0;
  for (const int64_t count : counts) {
    begins_.push_back(begins_.back() + count * element_bytes);
    longest = std::max(longest, count * element_bytes);
  }
  chunks_ = divide_up(longest, chunk_bytes_);
}

void ChunkPlan::plan_all_reduce(int rank, int size, int64_t count, int64_t element_bytes,
                                int64_t chunk_bytes) {
  begin(Kind::kAllReduce, rank, size, element_bytes, chunk_bytes);
  cut_evenly(count, element_bytes);
  receives_ = sends_ = 2 * first_phase();
}

void ChunkPlan::plan_all_gather(int rank, int size, std::span<const int64_t> counts, int64_t element_bytes,
                                int64_t chunk_bytes) {
  begin(Kind::kAllGather, rank, size, element_bytes, chunk_bytes);
  cut_at(counts, element_bytes);
  receives_ = sends_ = first_phase();
}

void ChunkPlan::plan_chain(int rank, int size, int root, int64_t bytes, int64_t chunk_bytes) {
  begin(Kind::kChain, rank, size, 1, chunk_bytes);
  root_ = root;
  begins_.assign({0, bytes});
  chunks_ = divide_up(bytes, chunk_bytes_);
  const int distance = wrap(rank - root);
  receives_ = distance > 0 ? chunks_ : 0;
  sends_ = distance < size_ - 1 ? chunks_ : 0;
}

void ChunkPlan::plan_direct_all_reduce(int rank, int size, int64_t count, int64_t element_bytes,
                                       int64_t chunk_bytes) {
  begin(Kind::kDirectAllReduce, rank, size, element_bytes, chunk_bytes);
  cut_evenly(count, element_bytes);
  receives_ = sends_ = 2 * first_phase();
}

void ChunkPlan::plan_direct_reduce_scatter(int rank, int size, std::span<const int64_t> counts,
                                           int64_t element_bytes, int64_t chunk_bytes) {
  begin(Kind::kDirectReduceScatter, rank, size, element_bytes, chunk_bytes);
  cut_at(counts, element_bytes);
  receives_ = sends_ = first_phase();
}

void ChunkPlan::cut_blocks(Blocks& blocks, std::span<const int64_t> counts, int64_t element_bytes) {
  blocks.begins.assign(1, 0);
  for (const int64_t count : counts) blocks.begins.push_back(blocks.begins.back() + count * element_bytes);
}

void ChunkPlan::count_pairs(Blocks& blocks, int direction) {
  blocks.ends.assign(1, 0);
  for (int64_t step = 1; step < size_; ++step) {
    const auto block = static_cast<size_t>(wrap(rank_ + direction * step));
    const int64_t bytes = blocks.begins[block + 1] - blocks.begins[block];
    blocks.ends.push_back(blocks.ends.back() + divide_up(bytes, chunk_bytes_));
  }
}

void ChunkPlan::plan_pairs(int rank, int size, std::span<const int64_t> send_counts,
                           std::span<const int64_t> receive_counts, int64_t element_bytes,
                           int64_t chunk_bytes) {
  begin(Kind::kPairs, rank, size, element_bytes, chunk_bytes);
  cut_blocks(sent_, send_counts, element_bytes);
  cut_blocks(received_, receive_counts, element_bytes);
  count_pairs(sent_, +1);
  count_pairs(received_, -1);
  sends_ = sent_.ends.back();
  receives_ = received_.ends.back();
}

ChunkPlan::Chunk ChunkPlan::chunk_of_segment(int64_t segment, int64_t index) const {
  const int64_t begin = begins_[static_cast<size_t>(segment)];
  const int64_t length = begins_[static_cast<size_t>(segment) + 1] - begin;
  const int64_t at = std::min(length, index * chunk_bytes_);
  Chunk chunk;
  chunk.in_offset = chunk.out_offset = begin + at;
  chunk.bytes = std::min(chunk_bytes_, length - at);
  return chunk;
}

ChunkPlan::Chunk ChunkPlan::chunk_of_pair(const Blocks& blocks, int64_t i, int direction) const {
  const auto step = std::upper_bound(blocks.ends.begin(), blocks.ends.end(), i) - blocks.ends.begin();
  const int peer = wrap(rank_ + direction * step);
  const int64_t begin = blocks.begins[static_cast<size_t>(peer)];
  const int64_t length = blocks.begins[static_cast<size_t>(peer) + 1] - begin;
  const int64_t at = (i - blocks.ends[static_cast<size_t>(step) - 1]) * chunk_bytes_;
  Chunk chunk;
  chunk.peer = peer;
  chunk.in_offset = chunk.out_offset = begin + at;
  chunk.bytes = std::min(chunk_bytes_, length - at);
  chunk.from_input = direction > 0;
  return chunk;
}

ChunkPlan::Chunk ChunkPlan::direct_receive(int64_t i) const {
  const bool gathers = i >= first_phase();
  const int64_t row = i % first_phase() / (size_ - 1);
  const int step = static_cast<int>(i % (size_ - 1)) + 1;
  const int peer = wrap(rank_ - step);
  Chunk chunk = chunk_of_segment(gathers ? peer : rank_, row);
  chunk.peer = peer;
  chunk.step = step;
  if (!gathers) chunk.arrival = step < size_ - 1 ? Arrival::kSummand : Arrival::kLastOfRow;
  if (kind_ == Kind::kDirectReduceScatter) chunk.out_offset -= begins_[static_cast<size_t>(rank_)];
  return chunk;
}

ChunkPlan::Chunk ChunkPlan::direct_send(int64_t i) const {
  const bool gathers = i >= first_phase();
  const int64_t row = i % first_phase() / (size_ - 1);
  const int peer = wrap(rank_ + i % (size_ - 1) + 1);
  Chunk chunk = chunk_of_segment(gathers ? rank_ : peer, row);
  chunk.peer = peer;
  chunk.from_input = !gathers;
  return chunk;
}

ChunkPlan::Chunk ChunkPlan::receive(int64_t i) const {
  if (kind_ == Kind::kPairs) return chunk_of_pair(received_, i, -1);
  if (direct()) return direct_receive(i);
  const int64_t step = kind_ == Kind::kChain ? 0 : i / chunks_;
  Chunk chunk = chunk_of_segment(kind_ == Kind::kChain ? 0 : wrap(rank_ - step - 1), i % chunks_);
  chunk.peer = wrap(rank_ - 1);
  if (kind_ == Kind::kAllReduce && step < size_ - 1) {
    chunk.arrival = step < size_ - 2 ? Arrival::kPartial : Arrival::kLastSum;
  }
  return chunk;
}

ChunkPlan::Chunk ChunkPlan::send(int64_t i) const {
  if (kind_ == Kind::kPairs) return chunk_of_pair(sent_, i, +1);
  if (direct()) return direct_send(i);
  const int64_t step = kind_ == Kind::kChain ? 0 : i / chunks_;
  Chunk chunk = chunk_of_segment(kind_ == Kind::kChain ? 0 : wrap(rank_ - step), i % chunks_);
  chunk.peer = wrap(rank_ + 1);
  chunk.from_input = kind_ == Kind::kAllReduce && step == 0;
  return chunk;
}

int64_t ChunkPlan::receives_before_send(int64_t i) const {
  if (kind_ == Kind::kPairs) return 0;
  if (kind_ == Kind::kChain) return rank_ != root_ ? i + 1 : 0;
  // A finished sum: its row must be here.
  if (direct()) return i < first_phase() ? 0 : ((i - first_phase()) / (size_ - 1) + 1) * (size_ - 1);
  return std::max<int64_t>(0, i - chunks_ + 1);
}

int64_t ChunkPlan::sends_before_receive(int64_t i) const {
  if (i < first_phase()) return 0;
  // In place, a finished sum replaces a summand that was sent before; in a ring a partial sum, P-1 steps
  // before.
  if (kind_ == Kind::kDirectAllReduce) return ((i - first_phase()) / (size_ - 1) + 1) * (size_ - 1);
  if (kind_ == Kind::kAllReduce) return i - first_phase() + 1;
  return 0;
}

int64_t ChunkPlan::kept() const {
  return direct() ? size_ - 2 : 0;
}

}  // namespace rondo
