// The collectives over NCCL that only move.
#include "runtime/comm/arguments.h"
#include "runtime/comm/nccl/nccl_blocks.h"
#include "runtime/comm/nccl/nccl_parts.h"

namespace rondo::nccl {

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

}  // namespace rondo::nccl
