// The communicator over NCCL, for the sources of this folder.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/arguments.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/comm/nccl/nccl_link.h"
#include "runtime/comm/signature.h"
#include "runtime/device/cuda/cuda_device.h"

namespace rondo::nccl {

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
inline void join(ncclResult_t& all, ncclResult_t one) {
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
  // Calls that are compared over the host cannot be replayed.
  bool capturable() const override { return !options_.check_calls; }
  void launch(CapturedWork& work, Stream& stream) override;
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
  NcclWork& take_work(const Signature& call, bool captured);
  void watch(NcclWork& work, Stream& stream, std::chrono::milliseconds deadline);
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
  struct Outgrown {
    Buffer memory;
    std::unique_ptr<Event> left;  // by the stream
  };
  std::vector<Outgrown> outgrown_;
  int64_t sequence_ = 0;
  std::string mismatch_;  // of the call that begins
  std::vector<std::unique_ptr<NcclWork>> works_;
  std::vector<NcclWork*> idle_;
};

}  // namespace rondo::nccl
