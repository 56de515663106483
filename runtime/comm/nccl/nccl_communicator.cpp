#include "runtime/comm/nccl/nccl_communicator.h"

#include <fmt/core.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/nccl/nccl_check.h"
#include "runtime/comm/nccl/nccl_parts.h"

namespace rondo {
namespace nccl {

NcclCommunicator::NcclCommunicator(Communicator& host, Device& device, SpanArithmetic& arithmetic,
                                   const NcclOptions& options, std::unique_ptr<Communicator> own_host)
    : own_host_(std::move(own_host)),
      host_(host),
      device_(device),
      arithmetic_(arithmetic),
      options_(options),
      stream_(cuda::make_urgent_stream(device)) {
  const Fact version{"NCCL's version", nccl_version()};
  agree_on(host_, std::span(&version, 1));
  ncclUniqueId id{};
  all_or_none(host_, "preparing NCCL", [&] {
    if (rank() != 0) return;
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) throw PeerError(nccl::failure_text(result, "ncclGetUniqueId", nullptr));
  });
  host_.broadcast({id.internal, sizeof(id.internal), DType::kU8}, 0, {.label = "NCCL's id"}).wait();
  all_or_none(host_, "connecting the GPUs", [&] {
    link_ = std::make_unique<Link>(id, device_,
                                   LinkOptions{.rank = rank(),
                                               .size = size(),
                                               .own_name = rank_name(topology(), rank()),
                                               .connect_deadline = options_.connect_deadline});
    token_ = device_.allocate(static_cast<int64_t>(sizeof(int32_t)));
  });
}

bool NcclCommunicator::begin(Signature& call, const CollectiveOptions& options) {
  link_->check();
  call.sequence = sequence_++;
  mismatch_.clear();
  if (options_.check_calls) compare(call, options);
  if (!mismatch_.empty()) return false;
  if (options.after != nullptr) stream_->wait(*options.after);
  return true;
}

NcclWork& NcclCommunicator::take_work(const Signature& call, bool captured) {
  if (idle_.empty()) {
    works_.push_back(std::make_unique<NcclWork>(*this));
    idle_.reserve(works_.size());
    idle_.push_back(works_.back().get());
  }
  NcclWork& work = *idle_.back();
  idle_.pop_back();
  work.flight_ = &link_->take(captured);
  work.flight_->call = call;
  return work;
}

Work NcclCommunicator::finish(const Signature& call, const CollectiveOptions& options) {
  const bool captured = stream_->capturing();
  NcclWork& work = take_work(call, captured);
  if (captured) {  // runs when launch() queues it, which watches it
    stream_->record(*work.flight_->done);
  } else {
    watch(work, *stream_, options.deadline);
  }
  return Work(&work);
}

void NcclCommunicator::watch(NcclWork& work, Stream& stream, std::chrono::milliseconds deadline) {
  Flight& flight = *work.flight_;
  flight.limit = deadline.count() > 0 ? deadline : options_.deadline;
  flight.deadline = Clock::now() + flight.limit;
  stream.record(*flight.done);
  link_->launched(flight);
}

void NcclCommunicator::launch(CapturedWork& work, Stream& stream) {
  host_.progress();  // hears of other ranks' failures
  link_->launch([&] { work.launch(stream); });
  Signature call = make_signature(CollectiveKind::kBarrier, {}, {.label = "a replayed step"});
  call.sequence = sequence_++;
  NcclWork& all = take_work(call, false);
  watch(all, stream, {});
  all.release();
}

Work NcclCommunicator::refuse(const Signature& call) {
  NcclWork& work = take_work(call, false);
  work.flight_->mismatch = mismatch_;
  return Work(&work);
}

void NcclCommunicator::compare(const Signature& call, const CollectiveOptions& options) {
  const auto ranks = static_cast<size_t>(size());
  std::vector<Signature> all(ranks);
  const auto bytes = static_cast<int64_t>(sizeof(Signature));
  host_
      .all_gather({&call, bytes, DType::kU8}, {all.data(), bytes * size(), DType::kU8},
                  {.label = call.label_text(), .deadline = options.deadline})
      .wait();
  Consensus consensus(all[0], 0);
  for (size_t r = 1; r < ranks; ++r) consensus.merge(Consensus(all[r], static_cast<int>(r)));
  if (consensus.differs()) mismatch_ = consensus.message(topology());
}

void NcclCommunicator::compare_splits(const Signature& call, std::span<const int64_t> send_counts,
                                      std::span<const int64_t> receive_counts) {
  const auto ranks = static_cast<size_t>(size());
  std::vector<int64_t> sent(ranks * ranks), expected(ranks * ranks);
  host_.all_gather(span_of(send_counts), span_of(std::span(sent))).wait();
  host_.all_gather(span_of(receive_counts), span_of(std::span(expected))).wait();
  for (size_t from = 0; from < ranks; ++from) {
    for (size_t to = 0; to < ranks; ++to) {
      if (sent[from * ranks + to] == expected[to * ranks + from]) continue;
      mismatch_ = split_mismatch(topology(), call,
                                 {.from = static_cast<int>(from),
                                  .to = static_cast<int>(to),
                                  .sent = sent[from * ranks + to],
                                  .expected = expected[to * ranks + from]});
      return;
    }
  }
}

// Grows in calls that are larger than those before. Earlier work may still be on the old memory, and the host
// must not wait for it here: it may need a rank that waits in just this way for this one, on another
// communicator.
void* NcclCommunicator::staging(int64_t bytes) {
  if (staging_.bytes() >= bytes) return staging_.data();
  std::erase_if(outgrown_, [](const Outgrown& old) { return old.left->happened(); });
  const int64_t wanted = std::max(bytes, 2 * staging_.bytes());
  if (staging_.bytes() > 0) {
    outgrown_.push_back({std::move(staging_), device_.make_event()});
    stream_->record(*outgrown_.back().left);
  }
  staging_ = device_.allocate(wanted);
  return staging_.data();
}

void NcclWork::raise_mismatch() const {
  if (!flight_->mismatch.empty()) throw MismatchError(flight_->mismatch);
}

bool NcclWork::ready() {
  raise_mismatch();
  return comm_.link_->done(*flight_);
}

// Looks often at first, then rests; meanwhile the host communicator shows signs of life, and hears of other
// ranks' failures.
void NcclWork::wait() {
  raise_mismatch();
  std::chrono::microseconds pause{0};
  while (!comm_.link_->done_in_time(*flight_)) {
    try {
      comm_.host_.progress();
    } catch (const PeerError& error) {
      comm_.link_->fail(error.what());
      throw;
    }
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    pause = std::min(pause + std::chrono::microseconds(2), std::chrono::microseconds(200));
  }
}

void NcclWork::order_before(Stream& stream) {
  raise_mismatch();
  comm_.link_->check();
  stream.wait(*flight_->done);
}

void NcclWork::release() {
  comm_.link_->let_go(*std::exchange(flight_, nullptr));
  comm_.idle_.push_back(this);
}

}  // namespace nccl

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device,
                                                     SpanArithmetic& arithmetic, const NcclOptions& options) {
  require(device.kind() == DeviceKind::kCuda, "NCCL needs a GPU, got {}", device.name());
  return std::make_unique<nccl::NcclCommunicator>(host, device, arithmetic, options);
}

std::string nccl_version() {
  int version = 0;
  const ncclResult_t result = ncclGetVersion(&version);
  if (result != ncclSuccess) throw DeviceError(nccl::failure_text(result, "ncclGetVersion", nullptr));
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace rondo
