#include "tests/nccl/device_view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/comm/arguments.h"
#include "runtime/comm/communicator.h"

namespace rondo {
namespace {

class DeviceView;

// Host memory and its place on the device.
struct Mirror {
  void* host = nullptr;
  void* device = nullptr;
  int64_t bytes = 0;
};

class ViewWork final : public WorkState {
 public:
  explicit ViewWork(Stream& stream) : stream_(stream) {}
  bool ready() override {
    if (!inner_.ready()) return false;
    wait();
    return true;
  }
  void wait() override {
    if (done_) return;
    inner_.wait();
    for (const Mirror& out : outs_) stream_.copy(out.host, out.device, out.bytes);
    stream_.synchronize();
    done_ = true;
  }
  void order_before(Stream&) override { wait(); }
  void release() override {}  // kept until the view ends

 private:
  friend class DeviceView;
  Stream& stream_;
  std::vector<Buffer> memory_;
  std::vector<Mirror> outs_;
  Work inner_;
  bool done_ = false;
};

class DeviceView final : public Communicator {
 public:
  DeviceView(std::unique_ptr<Communicator> inner, Device& device)
      : inner_(std::move(inner)), device_(device), stream_(device.make_stream()) {}
  ~DeviceView() override { works_.clear(); }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const Topology& topology() const override { return inner_->topology(); }
  std::string name() const override { return inner_->name(); }
  Buffer allocate(int64_t bytes) override {
    Buffer there = inner_->allocate(bytes);
    const auto host = std::make_shared<std::vector<char>>(static_cast<size_t>(bytes) + 64, 'x');
    stream_->copy(host->data(), there.data(), bytes);
    stream_->synchronize();
    return Buffer(host->data(), bytes, host);
  }

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    return run(in, out, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return inner_->all_reduce(from, to, op, inner);
    });
  }
  Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                        const CollectiveOptions& options) override {
    check_all_reduce_group(pairs, op, options);  // on the device pairs lie apart that overlap here
    ViewWork& work = add_work();
    std::vector<SpanPair> there;
    for (const SpanPair& pair : pairs) there.push_back(mirror(work, pair.in, pair.out));
    stream_->synchronize();
    return launch(work, options,
                  [&](const CollectiveOptions& inner) { return inner_->all_reduce_group(there, op, inner); });
  }
  Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                      const CollectiveOptions& options) override {
    return run(in, out, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return inner_->reduce_scatter(from, to, counts, op, inner);
    });
  }
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override {
    return run(buffer, buffer, options, [&](ConstSpan, Span to, const CollectiveOptions& inner) {
      return inner_->broadcast(to, root, inner);
    });
  }
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override {
    return run(in, out, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return inner_->all_gather_v(from, to, counts, inner);
    });
  }
  Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                    std::span<const int64_t> receive_counts, const CollectiveOptions& options) override {
    return run(in, out, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return inner_->all_to_all_v(from, to, send_counts, receive_counts, inner);
    });
  }
  Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                const CollectiveOptions& options) override {
    const Span ignored = rank() == root ? out : Span{nullptr, 0, in.dtype};
    return run(in, ignored, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return inner_->gather_v(from, rank() == root ? to : out, counts, root, inner);
    });
  }
  Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                 const CollectiveOptions& options) override {
    const ConstSpan ignored = rank() == root ? in : ConstSpan{nullptr, 0, out.dtype};
    return run(ignored, out, options, [&](ConstSpan from, Span to, const CollectiveOptions& inner) {
      return inner_->scatter_v(rank() == root ? from : in, to, counts, root, inner);
    });
  }
  Work barrier(const CollectiveOptions& options) override { return inner_->barrier(options); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    auto child = inner_->split(color, key);
    return child == nullptr ? nullptr : std::make_unique<DeviceView>(std::move(child), device_);
  }
  void progress() override { inner_->progress(); }
  void publish_failure(std::string_view reason) noexcept override { inner_->publish_failure(reason); }

 private:
  // Wrong arguments have no memory behind them: they go on as they are, and are refused.
  static bool sound(ConstSpan span) { return span.count >= 0 && (span.data != nullptr || span.count == 0); }

  ViewWork& add_work() {
    works_.push_back(std::make_unique<ViewWork>(*stream_));
    return *works_.back();
  }

  // Both spans on the device, within one block where they touch on the host; both are filled, since what a
  // call leaves alone must stay.
  SpanPair mirror(ViewWork& work, ConstSpan in, Span out) {
    if (!sound(in) || !sound(out)) return {in, out};
    const auto *in_begin = static_cast<const char*>(in.data), *out_begin = static_cast<const char*>(out.data);
    const bool touch = in.count > 0 && out.count > 0 && in_begin < out_begin + out.bytes() &&
                       out_begin < in_begin + in.bytes();
    SpanPair there{in, out};
    if (touch) {
      const char* begin = std::min(in_begin, out_begin);
      const char* end = std::max(in_begin + in.bytes(), out_begin + out.bytes());
      char* block = upload(work, begin, end - begin);
      there.in.data = block + (in_begin - begin);
      there.out.data = block + (out_begin - begin);
    } else {
      if (in.count > 0) there.in.data = upload(work, in.data, in.bytes());
      if (out.count > 0) there.out.data = upload(work, out.data, out.bytes());
    }
    if (out.count > 0) work.outs_.push_back({out.data, there.out.data, out.bytes()});
    return there;
  }
  char* upload(ViewWork& work, const void* from, int64_t bytes) {
    work.memory_.push_back(device_.allocate(bytes));
    stream_->copy(work.memory_.back().data(), from, bytes);
    return work.memory_.back().as<char>();
  }

  template <class Call>
  Work run(ConstSpan in, Span out, const CollectiveOptions& options, const Call& call) {
    ViewWork& work = add_work();
    const SpanPair there = mirror(work, in, out);
    stream_->synchronize();
    return launch(work, options,
                  [&](const CollectiveOptions& inner) { return call(there.in, there.out, inner); });
  }
  template <class Call>
  Work launch(ViewWork& work, const CollectiveOptions& options, const Call& call) {
    CollectiveOptions inner = options;
    inner.after = nullptr;  // of the host's stream, which is always done
    work.inner_ = call(inner);
    return Work(&work);
  }

  std::unique_ptr<Communicator> inner_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<ViewWork>> works_;
};

}  // namespace

std::unique_ptr<Communicator> view_from_host(std::unique_ptr<Communicator> inner, Device& device) {
  return std::make_unique<DeviceView>(std::move(inner), device);
}

}  // namespace rondo
