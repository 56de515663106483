#include "runtime/comm/staged/staged_communicator.h"

#include <utility>
#include <vector>

#include "runtime/comm/arguments.h"
#include "runtime/comm/communicator.h"

namespace rondo {
namespace {

class StagedCommunicator;

// Host memory and where it is copied to when the collective is over.
struct Result {
  void* device = nullptr;
  const void* host = nullptr;
  int64_t bytes = 0;
};

class StagedWork final : public WorkState {
 public:
  explicit StagedWork(StagedCommunicator& comm, Device& device) : comm_(comm), done_(device.make_event()) {}
  bool ready() override;
  void wait() override;
  void order_before(Stream& stream) override;
  void release() override;

 private:
  friend class StagedCommunicator;
  void fetch();  // waits for the collective, and queues the copies of its results

  StagedCommunicator& comm_;
  std::unique_ptr<Event> done_;
  Buffer in_, out_;
  std::vector<Result> results_;
  std::vector<SpanPair> pairs_;
  Work inner_;
  bool fetched_ = true;
};

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Communicator& host, Device& device, std::unique_ptr<Communicator> own_host = nullptr)
      : own_host_(std::move(own_host)), host_(host), device_(device), stream_(device.make_stream()) {}
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
  friend class StagedWork;

  // With host memory for inputs and outputs; what it copied for an earlier call is done.
  StagedWork& take(int64_t in_bytes, int64_t out_bytes) {
    if (idle_.empty()) {
      works_.push_back(std::make_unique<StagedWork>(*this, device_));
      idle_.reserve(works_.size());
      idle_.push_back(works_.back().get());
    }
    StagedWork& work = *idle_.back();
    idle_.pop_back();
    work.done_->synchronize();
    if (work.in_.bytes() < in_bytes) work.in_ = device_.allocate_host(in_bytes);
    if (work.out_.bytes() < out_bytes) work.out_ = device_.allocate_host(out_bytes);
    work.results_.clear();
    return work;
  }

  // Copies to the host what is queued, and starts the collective on it. The handle takes the work back to the
  // pool if that throws.
  template <class Call>
  Work start(StagedWork& work, const CollectiveOptions& options, const Call& call) {
    Work handle(&work);
    stream_->synchronize();
    CollectiveOptions inner = options;
    inner.after = nullptr;
    work.inner_ = call(inner);
    work.fetched_ = false;
    return handle;
  }

  template <class Call>
  Work staged(ConstSpan in, Span out, const CollectiveOptions& options, const Call& call) {
    StagedWork& work = take(in.bytes(), out.bytes());
    if (options.after != nullptr) stream_->wait(*options.after);
    if (in.count > 0) stream_->copy(work.in_.data(), in.data, in.bytes());
    if (out.count > 0) work.results_.push_back({out.data, work.out_.data(), out.bytes()});
    const ConstSpan from{in.count > 0 ? work.in_.data() : nullptr, in.count, in.dtype};
    const Span to{out.count > 0 ? work.out_.data() : nullptr, out.count, out.dtype};
    return start(work, options, [&](const CollectiveOptions& inner) { return call(from, to, inner); });
  }

  // Each pair's input lies where its output will.
  template <class Call>
  Work in_place(std::span<const SpanPair> pairs, const CollectiveOptions& options, const Call& call) {
    int64_t bytes = 0;
    for (const SpanPair& pair : pairs) bytes += pair.in.bytes();
    StagedWork& work = take(0, bytes);
    if (options.after != nullptr) stream_->wait(*options.after);
    work.pairs_.clear();
    auto* place = work.out_.as<char>();
    for (const SpanPair& pair : pairs) {
      const Span there{pair.in.count > 0 ? place : nullptr, pair.in.count, pair.in.dtype};
      work.pairs_.push_back({there, there});
      if (pair.in.count == 0) continue;
      stream_->copy(there.data, pair.in.data, pair.in.bytes());
      work.results_.push_back({pair.out.data, there.data, there.bytes()});
      place += pair.in.bytes();
    }
    return start(work, options, [&](const CollectiveOptions& inner) {
      return call(std::span<const SpanPair>(work.pairs_), inner);
    });
  }

  std::unique_ptr<Communicator> own_host_;  // of a split
  Communicator& host_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<StagedWork>> works_;
  std::vector<StagedWork*> idle_;
};

void StagedWork::fetch() {
  if (fetched_) return;
  inner_.wait();
  for (const Result& result : results_) comm_.stream_->copy(result.device, result.host, result.bytes);
  comm_.stream_->record(*done_);
  fetched_ = true;
}

bool StagedWork::ready() {
  if (!fetched_ && !inner_.ready()) return false;
  fetch();
  return done_->happened();
}

void StagedWork::wait() {
  fetch();
  done_->synchronize();
}

void StagedWork::order_before(Stream& stream) {
  fetch();
  stream.wait(*done_);
}

void StagedWork::release() {
  inner_ = Work();
  fetched_ = true;
  comm_.idle_.push_back(this);
}

}  // namespace

std::unique_ptr<Communicator> make_staged_communicator(Communicator& host, Device& device) {
  return std::make_unique<StagedCommunicator>(host, device);
}

}  // namespace rondo
