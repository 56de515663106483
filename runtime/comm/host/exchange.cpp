#include "runtime/comm/host/exchange.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/comm/host/group.h"

namespace rondo {
namespace {

constexpr int64_t kHeaderBytes = sizeof(Consensus);
static_assert(std::is_trivially_copyable_v<Consensus>);

}  // namespace

void Exchange::start(const HostGroup& group, const Signature& signature, std::span<const int64_t> block_bytes,
                     const void* own) {
  group_ = &group;
  size_ = group.size();
  tag_ = make_tag(group.context, signature.sequence, kExchangePhase);
  distance_ = 1;
  step_started_ = false;
  payload_ = !block_bytes.empty();
  consensus_ = Consensus(signature, group.rank);
  in_.resize(kHeaderBytes + kMaxBlocks);  // whatever the sender thinks the call is, its message fits
  begins_.assign(1, 0);
  for (int j = 0; payload_ && j < size_; ++j) {
    begins_.push_back(begins_.back() + block_bytes[static_cast<size_t>((group.rank - j + size_) % size_)]);
  }
  RONDO_CHECK(begins_.back() <= kMaxBlocks);
  // Grows to the largest payload so far and stays.
  const auto total = static_cast<size_t>(begins_.back());
  if (blocks_.size() < total) blocks_.resize(total);
  if (out_.size() < kHeaderBytes + total) out_.resize(kHeaderBytes + total);
  if (payload_ && begins_[1] > 0) std::memcpy(blocks_.data(), own, static_cast<size_t>(begins_[1]));
}

int Exchange::blocks_to_move() const {
  return payload_ ? std::min(distance_, size_ - distance_) : 0;
}

int Exchange::waiting_for() const {
  // The receive is what usually lasts; a finished receive leaves a send to the rank on the other side.
  const bool sending = receive_ == MPI_REQUEST_NULL && send_ != MPI_REQUEST_NULL;
  const int distance = distance_ >= size_ ? distance_ / 2 : distance_;
  return sending ? (group_->rank + distance) % size_ : (group_->rank - distance + size_) % size_;
}

void Exchange::start_step() {
  start_receive(*group_, in_.data(), static_cast<int64_t>(in_.size()),
                (group_->rank - distance_ + size_) % size_, tag_, receive_);
  const int64_t bytes = consensus_.differs() ? 0 : block_begin(blocks_to_move());
  std::memcpy(out_.data(), &consensus_, kHeaderBytes);
  if (bytes > 0) std::memcpy(out_.data() + kHeaderBytes, blocks_.data(), static_cast<size_t>(bytes));
  start_send(*group_, out_.data(), kHeaderBytes + bytes, (group_->rank + distance_) % size_, tag_, send_);
  step_started_ = true;
}

void Exchange::finish_step(int64_t received) {
  Consensus theirs;
  RONDO_CHECK(received >= kHeaderBytes);
  std::memcpy(&theirs, in_.data(), kHeaderBytes);
  consensus_.merge(theirs);
  if (payload_ && !consensus_.differs()) {
    const int64_t begin = block_begin(distance_);
    const int64_t bytes = block_begin(distance_ + blocks_to_move()) - begin;
    RONDO_CHECK(received == kHeaderBytes + bytes);
    if (bytes > 0) std::memcpy(blocks_.data() + begin, in_.data() + kHeaderBytes, static_cast<size_t>(bytes));
  }
}

bool Exchange::advance() {
  bool moved = false;
  while (distance_ < size_) {
    if (!step_started_) {
      if (!test(*group_, send_, group_->rank)) return moved;  // out_ is still being read
      start_step();
      moved = true;
    }
    int64_t received = 0;
    if (!test(*group_, receive_, waiting_for(), &received)) return moved;
    finish_step(received);
    distance_ *= 2;
    step_started_ = false;
    moved = true;
  }
  if (send_ != MPI_REQUEST_NULL && test(*group_, send_, waiting_for())) moved = true;
  return moved;
}

const void* Exchange::block(int rank) const {
  return blocks_.data() + block_begin((group_->rank - rank + size_) % size_);
}

bool Exchange::abandon() noexcept {
  const bool sent = abandon_send(send_);
  return abandon_receive(receive_) && sent;
}

}  // namespace rondo
