#include "runtime/comm/shared/group.h"

#include <new>
#include <utility>

#include "runtime/comm/shared/bootstrap.h"
#include "runtime/comm/shared/sharing.h"
#include "runtime/comm/shared/world.h"

namespace rondo {
namespace {

constexpr int64_t kPage = 4096;

int64_t round_up(int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

constexpr int64_t kMailBytes = (sizeof(Post) + SharedGroup::kLetterBytes + 127) / 128 * 128;

// The parts of a member's share, one behind the other.
int64_t mail_begin() {
  return round_up(sizeof(Mailbox));
}
int64_t counts_begin() {
  return mail_begin() + round_up(2 * kMailBytes);
}
int64_t slots_begin(int size) {
  return counts_begin() + round_up(int64_t{2} * 2 * size * static_cast<int64_t>(sizeof(int64_t)));
}
int64_t share_bytes(int size) {
  return slots_begin(size) + SharedGroup::kSlots * SharedGroup::kSlotBytes;
}

}  // namespace

SharedGroup::SharedGroup(std::shared_ptr<SharedWorld> world, Bootstrap& members, std::vector<int> world_ranks)
    : world_(std::move(world)), world_ranks_(std::move(world_ranks)), rank_(members.rank()) {
  mapping_ = world_->sharing().map(members, world_ranks_, share_bytes(size()));
  places_ = world_->sharing().places(world_ranks_);
  new (mapping_.part(rank_)) Mailbox;
  for (const int64_t call : {0, 1}) new (&post(rank_, call)) Post;
  // Nobody looks into a mailbox before its owner has made it.
  const std::byte done{1};
  std::vector<std::byte> all(world_ranks_.size());
  members.all_gather(std::span(&done, 1), all);
}

Buffer SharedGroup::allocate(Bootstrap& members, int64_t bytes) {
  return world_->memory().allocate(members, world_ranks_, bytes);
}

int64_t* SharedGroup::counts(int rank, int64_t call) const {
  return reinterpret_cast<int64_t*>(mapping_.part(rank) + counts_begin()) + (call & 1) * 2 * size();
}

Post& SharedGroup::post(int rank, int64_t call) const {
  return *reinterpret_cast<Post*>(mapping_.part(rank) + mail_begin() + (call & 1) * kMailBytes);
}

std::byte* SharedGroup::letter(int rank, int64_t call) const {
  Post& of = post(rank, call);
  return of.source == Source::kTiny ? of.tiny : reinterpret_cast<std::byte*>(&of) + sizeof(Post);
}

int SharedGroup::slots_in_use() const {
  return world_->crowded() ? kSlots : kSlotsInCache;
}

std::byte* SharedGroup::slot(int rank, int64_t chunk) const {
  return mapping_.part(rank) + slots_begin(size()) + chunk % kSlots * kSlotBytes;
}

void SharedGroup::ring() const {
  world_->ring(world_ranks_);
}

}  // namespace rondo
