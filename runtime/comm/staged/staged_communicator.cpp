#include "runtime/comm/staged/staged_communicator.h"

#include <utility>
#include <vector>

#include "runtime/comm/arguments.h"
#include "runtime/comm/communicator.h"

namespace rondo {
namespace {

class StagedCommunicator;

// All works share one event, which moves with every call: to wait for a later one is to wait for all before
// it.
class StagedWork final : public WorkState {
 public:
  explicit StagedWork(Device& device) : done_(device.make_event()) {}
  bool ready() override { return done_->happened(); }
  void wait() override { done_->synchronize(); }
  void order_before(Stream& stream) override { stream.wait(*done_); }
  void release() override {}
  Event& done() { return *done_; }

 private:
  std::unique_ptr<Event> done_;
};

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Communicator& host, Device& device, std::unique_ptr<Communicator> own_host = nullptr)
      : own_host_(std::move(own_host)),
        host_(host),
        device_(device),
        stream_(device.make_stream()),
        work_(device) {}
  ~StagedCommunicator() override {
    try {
      stream_->synchronize();  // copies into memory of callers
    } catch (...) {
      // The device failed: nothing is copied any more.
    }
  }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  const Topology& topology() const override { return host_.topology(); }
  std::string name() const override { return host_.name() + ", staged through host memory"; }
  Communicator& host() override { return host_; }
  Buffer allocate(int64_t bytes) override { return device_.allocate(bytes); }

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    check_all_reduce(in, out, op, options);
    return staged(in, out, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return host_.all_reduce(from, to, op, inner);
    });
  }
  Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                        const CollectiveOptions& options) override {
    check_all_reduce_group(pairs, op, options);
    return in_place(pairs, options, [&](std::span<const SpanPair> there, const auto& inner) {
      return host_.all_reduce_group(there, op, inner);
    });
  }
  Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                      const CollectiveOptions& options) override {
    check_reduce_scatter(in, out, counts, op, rank(), size(), options);
    return staged(in, out, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return host_.reduce_scatter(from, to, counts, op, inner);
    });
  }
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override {
    check_broadcast(buffer, root, size());
    const SpanPair pair{buffer, buffer};
    return in_place(std::span(&pair, 1), options, [&](std::span<const SpanPair> there, const auto& inner) {
      return host_.broadcast(there[0].out, root, inner);
    });
  }
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override {
    check_all_gather_v(in, out, counts, rank(), size());
    return staged(in, out, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return host_.all_gather_v(from, to, counts, inner);
    });
  }
  Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                    std::span<const int64_t> receive_counts, const CollectiveOptions& options) override {
    check_all_to_all_v(in, out, send_counts, receive_counts, rank(), size());
    return staged(in, out, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return host_.all_to_all_v(from, to, send_counts, receive_counts, inner);
    });
  }
  Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                const CollectiveOptions& options) override {
    check_gather_v(in, out, counts, root, rank(), size());
    return staged(in, rank() == root ? out : Span{nullptr, 0, in.dtype}, options,
                  [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
                    return host_.gather_v(from, to, counts, root, inner);
                  });
  }
  Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                 const CollectiveOptions& options) override {
    check_scatter_v(in, out, counts, root, rank(), size());
    return staged(rank() == root ? in : ConstSpan{nullptr, 0, out.dtype}, out, options,
                  [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
                    return host_.scatter_v(from, to, counts, root, inner);
                  });
  }
  Work barrier(const CollectiveOptions& options) override {
    return staged({}, {}, options,
                  [&](ConstSpan, Span, const CollectiveOptions& inner) { return host_.barrier(inner); });
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    std::unique_ptr<Communicator> child = host_.split(color, key);
    if (child == nullptr) return nullptr;
    Communicator& of_child = *child;
    return std::make_unique<StagedCommunicator>(of_child, device_, std::move(child));
  }
  void progress() override { host_.progress(); }
  void publish_failure(std::string_view reason) noexcept override { host_.publish_failure(reason); }

 private:
  // Host memory for the inputs and the outputs of a call. What the call before copies out of it is done then.
  void reserve(int64_t in_bytes, int64_t out_bytes) {
    stream_->synchronize();
    if (in_.bytes() < in_bytes) in_ = device_.allocate_host(in_bytes);
    if (out_.bytes() < out_bytes) out_ = device_.allocate_host(out_bytes);
  }

  template <class Call>
  Work staged(ConstSpan in, Span out, const CollectiveOptions& options, const Call& call) {
    reserve(in.bytes(), out.bytes());
    if (options.after != nullptr) stream_->wait(*options.after);
    if (in.count > 0) stream_->copy(in_.data(), in.data, in.bytes());
    stream_->synchronize();
    CollectiveOptions inner = options;
    inner.after = nullptr;
    const ConstSpan from{in.count > 0 ? in_.data() : nullptr, in.count, in.dtype};
    const Span to{out.count > 0 ? out_.data() : nullptr, out.count, out.dtype};
    call(from, to, inner).wait();
    if (out.count > 0) stream_->copy(out.data, out_.data(), out.bytes());
    stream_->record(work_.done());
    return Work(&work_);
  }

  // Each pair's input lies where its output will.
  template <class Call>
  Work in_place(std::span<const SpanPair> pairs, const CollectiveOptions& options, const Call& call) {
    int64_t bytes = 0;
    for (const SpanPair& pair : pairs) bytes += pair.in.bytes();
    reserve(0, bytes);
    if (options.after != nullptr) stream_->wait(*options.after);
    pairs_.clear();
    auto* place = out_.as<char>();
    for (const SpanPair& pair : pairs) {
      const Span there{pair.in.count > 0 ? place : nullptr, pair.in.count, pair.in.dtype};
      if (pair.in.count > 0) stream_->copy(there.data, pair.in.data, pair.in.bytes());
      pairs_.push_back({there, there});
      place += pair.in.bytes();
    }
    stream_->synchronize();
    CollectiveOptions inner = options;
    inner.after = nullptr;
    call(std::span<const SpanPair>(pairs_), inner).wait();
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (pairs[i].out.count > 0) stream_->copy(pairs[i].out.data, pairs_[i].out.data, pairs[i].out.bytes());
    }
    stream_->record(work_.done());
    return Work(&work_);
  }

  std::unique_ptr<Communicator> own_host_;  // of a split
  Communicator& host_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  StagedWork work_;
  Buffer in_, out_;
  std::vector<SpanPair> pairs_;
};

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Communicator& host, Device& device) {
  return std::make_unique<StagedCommunicator>(host, device);
}

}  // namespace rondo
