#include "runtime/comm/nccl/nccl_communicator.h"

#include <fmt/core.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/arguments.h"
#include "runtime/comm/nccl/nccl_check.h"
#include "runtime/comm/nccl/nccl_link.h"
#include "runtime/comm/signature.h"
#include "runtime/device/cuda/cuda_device.h"

namespace rondo {
namespace {

using nccl::Clock;
using nccl::Flight;
using nccl::Link;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return ncclUint8;
    case DType::kI8:
      return ncclInt8;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kU16:
    case DType::kI16:
      break;  // reduced as int32
  }
  raise<InternalError>("NCCL has no type {}", dtype_name(dtype));
}

// NCCL has no 16-bit integers: they are widened, reduced, and cut back, which gives their own sums and
// products modulo 2^16.
bool widened(DType dtype) {
  return dtype == DType::kU16 || dtype == DType::kI16;
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kAverage:
      return ncclAvg;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
  }
  raise<InternalError>("unknown reduction {}", static_cast<int>(op));
}

const char* at(const void* data, int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}
char* at(void* data, int64_t bytes) {
  return static_cast<char*>(data) + bytes;
}

bool all_equal(std::span<const int64_t> counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// Calls `each(rank, bytes before its block, bytes)` for all ranks.
template <class Each>
void for_blocks(std::span<const int64_t> counts, DType dtype, const Each& each) {
  int64_t before = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    const int64_t bytes = counts[r] * dtype_size(dtype);
    each(static_cast<int>(r), before, bytes);
    before += bytes;
  }
}

class NcclCommunicator;

class NcclWork final : public WorkState {
 public:
  explicit NcclWork(NcclCommunicator& comm) : comm_(comm) {}
  bool ready() override;
  void wait() override;
  void order_before(Stream& stream) override;
  void release() override;

 private:
  friend class NcclCommunicator;
  void raise_mismatch() const;

  NcclCommunicator& comm_;
  Flight* flight_ = nullptr;
};

// The end of one group call of NCCL: an exception on the way must not leave the group open.
class GroupCall {
 public:
  GroupCall() : begun_(ncclGroupStart()) {}
  ncclResult_t end(ncclResult_t inside) {
    open_ = false;
    const ncclResult_t result = ncclGroupEnd();
    if (begun_ != ncclSuccess) return begun_;
    return inside == ncclSuccess || inside == ncclInProgress ? result : inside;
  }
  ~GroupCall() {
    if (open_) ncclGroupEnd();
  }
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

 private:
  ncclResult_t begun_;
  bool open_ = true;
};

// Keeps the first failure of several calls.
void join(ncclResult_t& all, ncclResult_t one) {
  if (all == ncclSuccess || all == ncclInProgress) all = one;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Communicator& host, Device& device, SpanArithmetic& arithmetic, const NcclOptions& options,
                   std::unique_ptr<Communicator> own_host = nullptr);
  ~NcclCommunicator() override { link_.reset(); }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  const Topology& topology() const override { return host_.topology(); }
  std::string name() const override { return fmt::format("NCCL {}", nccl_version()); }
  Communicator& host() override { return host_; }
  Buffer allocate(int64_t bytes) override {
    require(bytes >= 0, "cannot allocate {} bytes: the size is negative", bytes);
    return link_->allocate(bytes, *stream_);
  }

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    check_all_reduce(in, out, op, options);
    const SpanPair pair{in, out};
    return reduce_pairs(std::span(&pair, 1), make_reduction(CollectiveKind::kAllReduce, out, op, options), op,
                        options);
  }
  Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                        const CollectiveOptions& options) override {
    check_all_reduce_group(pairs, op, options);
    return reduce_pairs(pairs, make_group_signature(pairs, op, options), op, options);
  }
  Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                      const CollectiveOptions& options) override;
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override;
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override;
  Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                    std::span<const int64_t> receive_counts, const CollectiveOptions& options) override;
  Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                const CollectiveOptions& options) override;
  Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                 const CollectiveOptions& options) override;
  Work barrier(const CollectiveOptions& options) override;

  std::unique_ptr<Communicator> split(int color, int key) override {
    link_->check();
    std::unique_ptr<Communicator> child = host_.split(color, key);
    if (child == nullptr) return nullptr;
    Communicator& of_child = *child;
    return std::make_unique<NcclCommunicator>(of_child, device_, arithmetic_, options_, std::move(child));
  }
  void progress() override { host_.progress(); }
  void publish_failure(std::string_view reason) noexcept override {
    link_->fail(std::string(reason));
    host_.publish_failure(reason);
  }

 private:
  friend class NcclWork;

  Work reduce_pairs(std::span<const SpanPair> pairs, const Signature& call, ReduceOp op,
                    const CollectiveOptions& options);
  // Raises what went wrong before, gives the call its number, compares it with the other ranks' where that is
  // asked for, and lets the stream wait for `after`. False: they differ, and refuse() is what the call
  // returns.
  bool begin(Signature& call, const CollectiveOptions& options);
  Work refuse(const Signature& call);
  NcclWork& take_work(const Signature& call);
  Work finish(const Signature& call, const CollectiveOptions& options);
  void compare(const Signature& call, const CollectiveOptions& options);
  void compare_splits(const Signature& call, std::span<const int64_t> send_counts,
                      std::span<const int64_t> receive_counts);
  static ncclDataType_t working_type(DType dtype);
  void convert_pairs(std::span<const SpanPair> pairs, int32_t* wides, bool scaled, bool there);
  void* staging(int64_t bytes);
  cudaStream_t queue() { return cuda::handle_of(*stream_); }
  template <class Calls>
  void group(const char* name, const Calls& calls) {
    link_->run(name, [&](ncclComm_t comm) {
      GroupCall open;
      ncclResult_t all = ncclSuccess;
      calls(comm, all);
      return open.end(all);
    });
  }

  std::unique_ptr<Communicator> own_host_;  // of a split
  Communicator& host_;
  Device& device_;
  SpanArithmetic& arithmetic_;
  NcclOptions options_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Link> link_;
  Buffer token_;    // what a barrier reduces
  Buffer staging_;  // of reductions with scales and of exchanges in place
  int64_t sequence_ = 0;
  std::string mismatch_;  // of the call that begins
  std::vector<std::unique_ptr<NcclWork>> works_;
  std::vector<NcclWork*> idle_;
};

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
                                   nccl::LinkOptions{.rank = rank(),
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

NcclWork& NcclCommunicator::take_work(const Signature& call) {
  if (idle_.empty()) {
    works_.push_back(std::make_unique<NcclWork>(*this));
    idle_.reserve(works_.size());
    idle_.push_back(works_.back().get());
  }
  NcclWork& work = *idle_.back();
  idle_.pop_back();
  work.flight_ = &link_->take();
  work.flight_->call = call;
  return work;
}

Work NcclCommunicator::finish(const Signature& call, const CollectiveOptions& options) {
  NcclWork& work = take_work(call);
  Flight& flight = *work.flight_;
  flight.limit = options.deadline.count() > 0 ? options.deadline : options_.deadline;
  flight.deadline = Clock::now() + flight.limit;
  stream_->record(*flight.done);
  link_->launched(flight);
  return Work(&work);
}

Work NcclCommunicator::refuse(const Signature& call) {
  NcclWork& work = take_work(call);
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

// Grows in calls that are larger than those before; earlier work on it is done then.
void* NcclCommunicator::staging(int64_t bytes) {
  if (staging_.bytes() < bytes) {
    stream_->synchronize();
    staging_ = {};
    staging_ = device_.allocate(bytes);
  }
  return staging_.data();
}

// Where an operand of a reduction lies while NCCL works on it.
ncclDataType_t NcclCommunicator::working_type(DType dtype) {
  return nccl_type(widened(dtype) ? DType::kI32 : dtype);
}

// Scales are kernels before and after.
Work NcclCommunicator::reduce_pairs(std::span<const SpanPair> pairs, const Signature& plain, ReduceOp op,
                                    const CollectiveOptions& options) {
  const DType dtype = pairs.empty() ? DType::kF32 : pairs[0].out.dtype;
  const ncclDataType_t type = working_type(dtype);
  Signature call = plain;
  if (!begin(call, options)) return refuse(call);
  const bool before = options.prescale != 1.0, behind = options.postscale != 1.0, wide = widened(dtype);
  int64_t elements = 0;
  for (const SpanPair& pair : pairs) {
    if (before && pair.in.count > 0) arithmetic_.scale(*stream_, pair.in, pair.out, options.prescale);
    elements += pair.in.count;
  }
  auto* wides = wide ? static_cast<int32_t*>(staging(elements * 4)) : nullptr;
  if (wide) convert_pairs(pairs, wides, before, true);
  group("ncclAllReduce", [&](ncclComm_t comm, ncclResult_t& all) {
    int32_t* place = wides;
    for (const SpanPair& pair : pairs) {
      if (pair.in.count == 0) continue;
      const void* from = wide ? place : before ? pair.out.data : pair.in.data;
      join(all, ncclAllReduce(from, wide ? place : pair.out.data, static_cast<size_t>(pair.in.count), type,
                              nccl_op(op), comm, queue()));
      if (wide) place += pair.in.count;
    }
  });
  if (wide) convert_pairs(pairs, wides, before, false);
  for (const SpanPair& pair : pairs) {
    if (behind && pair.in.count > 0) arithmetic_.scale(*stream_, pair.out, pair.out, options.postscale);
  }
  return finish(call, options);
}

// All pairs into int32s, one behind the other, or back into their outputs.
void NcclCommunicator::convert_pairs(std::span<const SpanPair> pairs, int32_t* wides, bool scaled,
                                     bool there) {
  for (const SpanPair& pair : pairs) {
    if (pair.in.count == 0) continue;
    const Span wide{wides, pair.in.count, DType::kI32};
    if (there) {
      arithmetic_.convert(*stream_, scaled ? ConstSpan(pair.out) : pair.in, wide);
    } else {
      arithmetic_.convert(*stream_, wide, pair.out);
    }
    wides += pair.in.count;
  }
}

Work NcclCommunicator::reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                                      const CollectiveOptions& options) {
  check_reduce_scatter(in, out, counts, op, rank(), size(), options);
  const ncclDataType_t type = working_type(in.dtype);
  Signature call = make_reduction(CollectiveKind::kReduceScatter, in, op, options);
  call.set_counts(counts);
  if (!begin(call, options)) return refuse(call);
  const bool wide = widened(in.dtype), scaled = options.prescale != 1.0;
  ConstSpan from = in;
  Span to = out;
  if (in.count > 0 && (wide || scaled)) {
    // Staging: [scaled input][widened input][widened output]
    const int64_t narrow_bytes = scaled ? (in.bytes() + 255) / 256 * 256 : 0;
    char* place = static_cast<char*>(staging(narrow_bytes + (wide ? 4 * (in.count + out.count) : 0)));
    if (scaled) {
      const Span copy{place, in.count, in.dtype};
      arithmetic_.scale(*stream_, from, copy, options.prescale);
      from = copy;
    }
    if (wide) {
      const Span copy{place + narrow_bytes, in.count, DType::kI32};
      arithmetic_.convert(*stream_, from, copy);
      from = copy;
      to = {place + narrow_bytes + 4 * in.count, out.count, DType::kI32};
    }
  }
  group("ncclReduceScatter", [&](ncclComm_t comm, ncclResult_t& all) {
    if (in.count == 0) return;
    if (all_equal(counts)) {
      join(all, ncclReduceScatter(from.data, to.data, static_cast<size_t>(out.count), type, nccl_op(op), comm,
                                  queue()));
      return;
    }
    for_blocks(counts, from.dtype, [&](int root, int64_t offset, int64_t bytes) {
      if (bytes == 0) return;
      join(all,
           ncclReduce(at(from.data, offset), to.data, static_cast<size_t>(counts[static_cast<size_t>(root)]),
                      type, nccl_op(op), root, comm, queue()));
    });
  });
  if (wide && out.count > 0) arithmetic_.convert(*stream_, to, out);
  if (options.postscale != 1.0 && out.count > 0) {
    arithmetic_.scale(*stream_, out, out, options.postscale);
  }
  return finish(call, options);
}

// What only moves is bytes.
Work NcclCommunicator::broadcast(Span buffer, int root, const CollectiveOptions& options) {
  check_broadcast(buffer, root, size());
  Signature call = make_signature(CollectiveKind::kBroadcast, buffer, options);
  call.root = root;
  if (!begin(call, options)) return refuse(call);
  group("ncclBroadcast", [&](ncclComm_t comm, ncclResult_t& all) {
    if (buffer.count == 0) return;
    join(all, ncclBroadcast(buffer.data, buffer.data, static_cast<size_t>(buffer.bytes()), ncclUint8, root,
                            comm, queue()));
  });
  return finish(call, options);
}

Work NcclCommunicator::all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                                    const CollectiveOptions& options) {
  check_all_gather_v(in, out, counts, rank(), size());
  Signature call = make_signature(CollectiveKind::kAllGatherV, out, options);
  call.set_counts(counts);
  if (!begin(call, options)) return refuse(call);
  group("ncclAllGather", [&](ncclComm_t comm, ncclResult_t& all) {
    if (out.count == 0) return;
    if (all_equal(counts)) {
      join(all, ncclAllGather(in.data, out.data, static_cast<size_t>(in.bytes()), ncclUint8, comm, queue()));
      return;
    }
    for_blocks(counts, in.dtype, [&](int root, int64_t offset, int64_t bytes) {
      if (bytes == 0) return;
      const void* from = root == rank() ? in.data : at(out.data, offset);
      join(all, ncclBroadcast(from, at(out.data, offset), static_cast<size_t>(bytes), ncclUint8, root, comm,
                              queue()));
    });
  });
  return finish(call, options);
}

Work NcclCommunicator::all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                                    std::span<const int64_t> receive_counts,
                                    const CollectiveOptions& options) {
  check_all_to_all_v(in, out, send_counts, receive_counts, rank(), size());
  Signature call = make_signature(CollectiveKind::kAllToAllV, {nullptr, 0, in.dtype}, options);
  if (!begin(call, options)) return refuse(call);
  if (options_.check_calls) compare_splits(call, send_counts, receive_counts);
  if (!mismatch_.empty()) return refuse(call);
  const void* from = in.data;
  if (in.data == out.data && in.count > 0) {
    from = staging(in.bytes());
    stream_->copy(staging_.data(), in.data, in.bytes());
  }
  int64_t own_from = 0, own_to = 0;
  group("ncclSend", [&](ncclComm_t comm, ncclResult_t& all) {
    for_blocks(send_counts, in.dtype, [&](int peer, int64_t offset, int64_t bytes) {
      if (peer == rank()) own_from = offset;
      if (peer == rank() || bytes == 0) return;
      join(all, ncclSend(at(from, offset), static_cast<size_t>(bytes), ncclUint8, peer, comm, queue()));
    });
    for_blocks(receive_counts, in.dtype, [&](int peer, int64_t offset, int64_t bytes) {
      if (peer == rank()) own_to = offset;
      if (peer == rank() || bytes == 0) return;
      join(all, ncclRecv(at(out.data, offset), static_cast<size_t>(bytes), ncclUint8, peer, comm, queue()));
    });
  });
  const int64_t own = send_counts[static_cast<size_t>(rank())] * dtype_size(in.dtype);
  stream_->copy(at(out.data, own_to), at(from, own_from), own);
  return finish(call, options);
}

Work NcclCommunicator::gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                                const CollectiveOptions& options) {
  check_gather_v(in, out, counts, root, rank(), size());
  Signature call = make_signature(CollectiveKind::kGatherV, in, options);
  call.root = root;
  call.set_counts(counts);
  if (!begin(call, options)) return refuse(call);
  group("ncclGather", [&](ncclComm_t comm, ncclResult_t& all) {
    if (rank() != root) {
      if (in.count == 0) return;
      join(all, ncclSend(in.data, static_cast<size_t>(in.bytes()), ncclUint8, root, comm, queue()));
      return;
    }
    for_blocks(counts, in.dtype, [&](int peer, int64_t offset, int64_t bytes) {
      if (peer == root || bytes == 0) return;
      join(all, ncclRecv(at(out.data, offset), static_cast<size_t>(bytes), ncclUint8, peer, comm, queue()));
    });
  });
  for_blocks(counts, in.dtype, [&](int peer, int64_t offset, int64_t bytes) {
    if (peer == root && rank() == root) stream_->copy(at(out.data, offset), in.data, bytes);
  });
  return finish(call, options);
}

Work NcclCommunicator::scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                                 const CollectiveOptions& options) {
  check_scatter_v(in, out, counts, root, rank(), size());
  Signature call = make_signature(CollectiveKind::kScatterV, out, options);
  call.root = root;
  call.set_counts(counts);
  if (!begin(call, options)) return refuse(call);
  group("ncclScatter", [&](ncclComm_t comm, ncclResult_t& all) {
    if (rank() != root) {
      if (out.count == 0) return;
      join(all, ncclRecv(out.data, static_cast<size_t>(out.bytes()), ncclUint8, root, comm, queue()));
      return;
    }
    for_blocks(counts, in.dtype, [&](int peer, int64_t offset, int64_t bytes) {
      if (peer == root || bytes == 0) return;
      join(all, ncclSend(at(in.data, offset), static_cast<size_t>(bytes), ncclUint8, peer, comm, queue()));
    });
  });
  for_blocks(counts, in.dtype, [&](int peer, int64_t offset, int64_t bytes) {
    if (peer == root && rank() == root) stream_->copy(out.data, at(in.data, offset), bytes);
  });
  return finish(call, options);
}

Work NcclCommunicator::barrier(const CollectiveOptions& options) {
  Signature call = make_signature(CollectiveKind::kBarrier, {}, options);
  if (!begin(call, options)) return refuse(call);
  link_->run("ncclAllReduce", [&](ncclComm_t comm) {
    return ncclAllReduce(token_.data(), token_.data(), 1, ncclInt32, ncclSum, comm, queue());
  });
  return finish(call, options);
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

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device,
                                                     SpanArithmetic& arithmetic, const NcclOptions& options) {
  require(device.kind() == DeviceKind::kCuda, "NCCL needs a GPU, got {}", device.name());
  return std::make_unique<NcclCommunicator>(host, device, arithmetic, options);
}

std::string nccl_version() {
  int version = 0;
  const ncclResult_t result = ncclGetVersion(&version);
  if (result != ncclSuccess) throw DeviceError(nccl::failure_text(result, "ncclGetVersion", nullptr));
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace rondo
