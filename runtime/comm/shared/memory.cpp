#include "runtime/comm/shared/memory.h"

#include <algorithm>
#include <atomic>

#include "runtime/base/error.h"
#include "runtime/comm/shared/bootstrap.h"
#include "runtime/comm/shared/sharing.h"

namespace rondo {
namespace {

constexpr int64_t kLine = 64;

int64_t flag_offset(int64_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

}  // namespace

struct SharedMemory::Allocation {
  uint64_t id = 0;
  int64_t bytes = 0;
  std::vector<int> member_of;  // by world rank; -1: no member
  Mapping mapping;

  int members() const {
    return static_cast<int>(std::count_if(member_of.begin(), member_of.end(), [](int m) { return m >= 0; }));
  }
  // Behind each part: its owner holds no buffer on it any more.
  std::atomic<uint32_t>& released(int member) const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(mapping.part(member) + flag_offset(bytes));
  }
  bool released_by_all() const {
    for (int m = 0; m < members(); ++m) {
      if (released(m).load() == 0) return false;
    }
    return true;
  }
};

SharedMemory::SharedMemory(int world_size, int world_rank, std::shared_ptr<const Sharing> sharing)
    : world_size_(world_size), world_rank_(world_rank), sharing_(std::move(sharing)) {}

SharedMemory::~SharedMemory() = default;

Buffer SharedMemory::allocate(Bootstrap& members, std::span<const int> world_ranks, int64_t bytes) {
  // The longest part decides. The first member's number, which no other allocation of its has, makes one that
  // is unique in the world.
  struct Wish {
    int64_t bytes = 0;
    uint64_t number = 0;
  };
  Wish mine{bytes, 0};
  {
    const std::lock_guard lock(mutex_);
    mine.number = ++made_;
  }
  std::vector<Wish> wishes(world_ranks.size());
  members.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(wishes)));
  auto made = std::make_unique<Allocation>();
  for (const Wish& wish : wishes) made->bytes = std::max(made->bytes, wish.bytes);
  made->id = (static_cast<uint64_t>(world_ranks[0] + 1) << 40) | wishes[0].number;
  made->mapping = sharing_->map(members, world_ranks, flag_offset(made->bytes) + kLine);
  made->member_of.assign(static_cast<size_t>(world_size_), -1);
  for (size_t m = 0; m < world_ranks.size(); ++m) {
    made->member_of[static_cast<size_t>(world_ranks[m])] = static_cast<int>(m);
  }
  std::byte* data = made->mapping.part(members.rank());
  const uint64_t id = made->id;
  const std::lock_guard lock(mutex_);
  sweep();
  allocations_.push_back(std::move(made));
  return Buffer(data, bytes,
                std::shared_ptr<void>(data, [self = shared_from_this(), id](void*) { self->release(id); }));
}

Place SharedMemory::find(const void* data, int64_t bytes, std::span<const int> world_ranks) const {
  const auto* at = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  for (const auto& one : allocations_) {
    const std::byte* part = one->mapping.part(one->member_of[static_cast<size_t>(world_rank_)]);
    if (at < part || at + bytes > part + one->bytes) continue;
    const auto sees = [&](int rank) { return one->member_of[static_cast<size_t>(rank)] >= 0; };
    if (!std::all_of(world_ranks.begin(), world_ranks.end(), sees)) return {};
    return {one->id, at - part};
  }
  return {};
}

std::byte* SharedMemory::at(Place place, int world_rank) const {
  const std::lock_guard lock(mutex_);
  for (const auto& one : allocations_) {
    if (one->id != place.id) continue;
    return one->mapping.part(one->member_of[static_cast<size_t>(world_rank)]) + place.offset;
  }
  raise<InternalError>("a rank named shared memory {:x} that this rank does not know", place.id);
}

void SharedMemory::release(uint64_t id) {
  const std::lock_guard lock(mutex_);
  for (const auto& one : allocations_) {
    if (one->id == id) one->released(one->member_of[static_cast<size_t>(world_rank_)]).store(1);
  }
  sweep();
}

void SharedMemory::sweep() {
  std::erase_if(allocations_, [](const auto& one) { return one->released_by_all(); });
}

}  // namespace rondo
