#include "runtime/comm/host/chunk_plan.h"

#include <algorithm>

namespace rondo {
namespace {

int64_t whole_elements(int64_t chunk_bytes, int64_t element_bytes) {
  return std::max<int64_t>(1, chunk_bytes / element_bytes) * element_bytes;
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

void ChunkPlan::plan_all_reduce(int rank, int size, int64_t count, int64_t element_bytes,
                                int64_t chunk_bytes) {
  kind_ = Kind::kAllReduce;
  rank_ = rank;
  size_ = size;
  chunk_bytes_ = whole_elements(chunk_bytes, element_bytes);
  begins_.clear();
  const int64_t each = count / size;
  const int64_t longer = count % size;  // that many segments have one element more
  for (int64_t g = 0; g <= size; ++g) begins_.push_back((g * each + std::min(g, longer)) * element_bytes);
  chunks_ = divide_up((each + (longer > 0 ? 1 : 0)) * element_bytes, chunk_bytes_);
  receives_ = sends_ = 2 * (size_ - 1) * chunks_;
}

void ChunkPlan::plan_all_gather(int rank, int size, std::span<const int64_t> counts, int64_t element_bytes,
                                int64_t chunk_bytes) {
  kind_ = Kind::kAllGather;
  rank_ = rank;
  size_ = size;
  chunk_bytes_ = whole_elements(chunk_bytes, element_bytes);
  begins_.assign(1, 0);
  int64_t longest = 0;
  for (const int64_t count : counts) {
    begins_.push_back(begins_.back() + count * element_bytes);
    longest = std::max(longest, count * element_bytes);
  }
  chunks_ = divide_up(longest, chunk_bytes_);
  receives_ = sends_ = (size_ - 1) * chunks_;
}

void ChunkPlan::plan_chain(int rank, int size, int root, int64_t bytes, int64_t chunk_bytes) {
  kind_ = Kind::kChain;
  size_ = size;
  rank_ = wrap(rank - root);
  chunk_bytes_ = std::max<int64_t>(1, chunk_bytes);
  begins_.assign({0, bytes});
  chunks_ = divide_up(bytes, chunk_bytes_);
  receives_ = rank_ > 0 ? chunks_ : 0;
  sends_ = rank_ < size_ - 1 ? chunks_ : 0;
}

ChunkPlan::Chunk ChunkPlan::chunk_of_segment(int64_t segment, int64_t index) const {
  const int64_t begin = begins_[static_cast<size_t>(segment)];
  const int64_t length = begins_[static_cast<size_t>(segment) + 1] - begin;
  const int64_t at = std::min(length, index * chunk_bytes_);
  return {.offset = begin + at, .bytes = std::min(chunk_bytes_, length - at)};
}

ChunkPlan::Chunk ChunkPlan::receive(int64_t i) const {
  if (kind_ == Kind::kChain) return chunk_of_segment(0, i);
  const int64_t step = i / chunks_;
  Chunk chunk = chunk_of_segment(wrap(rank_ - step - 1), i % chunks_);
  chunk.reduce = kind_ == Kind::kAllReduce && step < size_ - 1;
  chunk.last = kind_ == Kind::kAllReduce && step == size_ - 2;
  return chunk;
}

ChunkPlan::Chunk ChunkPlan::send(int64_t i) const {
  if (kind_ == Kind::kChain) return chunk_of_segment(0, i);
  const int64_t step = i / chunks_;
  Chunk chunk = chunk_of_segment(wrap(rank_ - step), i % chunks_);
  chunk.from_input = kind_ == Kind::kAllReduce && step == 0;
  return chunk;
}

int64_t ChunkPlan::receives_before_send(int64_t i) const {
  if (kind_ == Kind::kChain) return rank_ > 0 ? i + 1 : 0;
  return std::max<int64_t>(0, i - chunks_ + 1);
}

int64_t ChunkPlan::sends_before_receive(int64_t i) const {
  // A segment's second visit (the finished sum) replaces the partial sum that was sent P-1 steps before.
  if (kind_ == Kind::kAllReduce && i >= (size_ - 1) * chunks_) return i - (size_ - 1) * chunks_ + 1;
  return 0;
}

}  // namespace rondo
