#include "tests/support/guarded_communicator.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "tests/support/guarded_device.h"

namespace rondo::test {
namespace {

class GuardedWork final : public WorkState {
 public:
  GuardedWork(Device& device, std::vector<GuardedWork*>& idle) : event_(device.make_event()), idle_(idle) {}
  Event& event() { return *event_; }
  bool ready() override { return event_->happened(); }
  void wait() override { event_->synchronize(); }
  void order_before(Stream& stream) override { stream.wait(*event_); }
  void release() override { idle_.push_back(this); }

 private:
  std::unique_ptr<Event> event_;
  std::vector<GuardedWork*>& idle_;
};

class GuardedCommunicator final : public Communicator {
 public:
  GuardedCommunicator(Communicator& host, GuardedDevice& device)
      : host_(host), device_(device), inner_(host.split(0, host.rank())), stream_(device.make_stream()) {}
  ~GuardedCommunicator() override { stream_->synchronize(); }

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  const Topology& topology() const override { return host_.topology(); }
  std::string name() const override { return "guarded " + host_.name(); }
  Communicator& host() override { return host_; }
  Buffer allocate(int64_t bytes) override { return device_.allocate(bytes); }

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    return start(options, [=, this, in = open(in), out = open(out)](const CollectiveOptions& inner) {
      return inner_->all_reduce(in, out, op, inner);
    });
  }
  Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                        const CollectiveOptions& options) override {
    std::vector<SpanPair> opened;
    for (const SpanPair& pair : pairs) opened.push_back({open(pair.in), open(pair.out)});
    return start(options, [=, this](const CollectiveOptions& inner) {
      return inner_->all_reduce_group(opened, op, inner);
    });
  }
  Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                      const CollectiveOptions& options) override {
    return start(options, [=, this, in = open(in), out = open(out), all = copy(counts)](const auto& inner) {
      return inner_->reduce_scatter(in, out, all, op, inner);
    });
  }
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override {
    return start(options, [=, this, buffer = open(buffer)](const CollectiveOptions& inner) {
      return inner_->broadcast(buffer, root, inner);
    });
  }
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override {
    return start(options, [=, this, in = open(in), out = open(out), all = copy(counts)](const auto& inner) {
      return inner_->all_gather_v(in, out, all, inner);
    });
  }
  Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                    std::span<const int64_t> receive_counts, const CollectiveOptions& options) override {
    return start(options, [=, this, in = open(in), out = open(out), sends = copy(send_counts),
                           receives = copy(receive_counts)](const CollectiveOptions& inner) {
      return inner_->all_to_all_v(in, out, sends, receives, inner);
    });
  }
  Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                const CollectiveOptions& options) override {
    return start(options, [=, this, in = open(in), out = open(out), all = copy(counts)](const auto& inner) {
      return inner_->gather_v(in, out, all, root, inner);
    });
  }
  Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                 const CollectiveOptions& options) override {
    return start(options, [=, this, in = open(in), out = open(out), all = copy(counts)](const auto& inner) {
      return inner_->scatter_v(in, out, all, root, inner);
    });
  }
  Work barrier(const CollectiveOptions& options) override {
    return start(options, [this](const CollectiveOptions& inner) { return inner_->barrier(inner); });
  }

  std::unique_ptr<Communicator> split(int, int) override {
    raise<Unavailable>("the guarded communicator cannot be split");
  }
  void progress() override {}
  void publish_failure(std::string_view reason) noexcept override { host_.publish_failure(reason); }

 private:
  ConstSpan open(ConstSpan span) const { return {device_.open(span.data), span.count, span.dtype}; }
  Span open(Span span) const { return {device_.open(span.data), span.count, span.dtype}; }
  static std::vector<int64_t> copy(std::span<const int64_t> counts) { return {counts.begin(), counts.end()}; }

  template <class Collective>
  Work start(const CollectiveOptions& options, Collective collective) {
    if (options.after != nullptr) stream_->wait(*options.after);
    GuardedDevice::queue(
        *stream_, [collective = std::move(collective), given = options, label = std::string(options.label)] {
          CollectiveOptions inner = given;
          inner.after = nullptr;
          inner.label = label;
          collective(inner).wait();
        });
    if (idle_.empty()) {
      works_.push_back(std::make_unique<GuardedWork>(device_, idle_));
      idle_.push_back(works_.back().get());
    }
    GuardedWork& work = *idle_.back();
    idle_.pop_back();
    stream_->record(work.event());
    return Work(&work);
  }

  Communicator& host_;
  GuardedDevice& device_;
  std::unique_ptr<Communicator> inner_;
  std::vector<std::unique_ptr<GuardedWork>> works_;
  std::vector<GuardedWork*> idle_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::unique_ptr<Communicator> make_guarded_communicator(Communicator& host, GuardedDevice& device) {
  return std::make_unique<GuardedCommunicator>(host, device);
}

}  // namespace rondo::test
