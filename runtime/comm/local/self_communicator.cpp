#include "runtime/comm/local/self_communicator.h"

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/arguments.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/topology.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/device/device.h"

namespace rondo {
namespace {

// The end of a collective on a device that works by itself.
class SelfWork final : public WorkState {
 public:
  SelfWork(Device& device, std::vector<SelfWork*>& idle) : event_(device.make_event()), idle_(idle) {}
  Event& event() { return *event_; }
  bool ready() override { return event_->happened(); }
  void wait() override { event_->synchronize(); }
  void order_before(Stream& stream) override { stream.wait(*event_); }
  void release() override { idle_.push_back(this); }

 private:
  std::unique_ptr<Event> event_;
  std::vector<SelfWork*>& idle_;
};

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(Device& device, std::shared_ptr<std::string> failure)
      : device_(device), stream_(device.make_stream()), failure_(std::move(failure)) {
    const std::string host = this_host_name();
    topology_ = make_topology(std::span(&host, 1), 0);
    if (device.host_accessible()) return;
    host_device_ = make_cpu_device(1);
    host_ = std::make_unique<SelfCommunicator>(*host_device_, failure_);
  }
  ~SelfCommunicator() override {
    try {
      stream_->synchronize();
    } catch (const std::exception&) {
      // The device failed: whoever waits for it is told.
    }
  }

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const Topology& topology() const override { return topology_; }
  std::string name() const override { return "one rank"; }
  Communicator& host() override { return host_ ? *host_ : *this; }
  Buffer allocate(int64_t bytes) override { return device_.allocate(bytes); }

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    begin();
    check_all_reduce(in, out, op, options);
    reduce_one(in, out, op, options);
    return end();
  }
  Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                        const CollectiveOptions& options) override {
    begin();
    check_all_reduce_group(pairs, op, options);
    for (const SpanPair& pair : pairs) reduce_one(pair.in, pair.out, op, options);
    return end();
  }
  Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                      const CollectiveOptions& options) override {
    begin();
    check_reduce_scatter(in, out, counts, op, 0, 1, options);
    reduce_one(in, out, op, options);
    return end();
  }
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override {
    begin();
    check_broadcast(buffer, root, 1);
    copy(buffer, buffer, options);
    return end();
  }
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override {
    begin();
    check_all_gather_v(in, out, counts, 0, 1);
    copy(in, out, options);
    return end();
  }
  Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                    std::span<const int64_t> receive_counts, const CollectiveOptions& options) override {
    begin();
    check_all_to_all_v(in, out, send_counts, receive_counts, 0, 1);
    copy(in, out, options);
    return end();
  }
  Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                const CollectiveOptions& options) override {
    begin();
    check_gather_v(in, out, counts, root, 0, 1);
    copy(in, out, options);
    return end();
  }
  Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                 const CollectiveOptions& options) override {
    begin();
    check_scatter_v(in, out, counts, root, 0, 1);
    copy(in, out, options);
    return end();
  }
  Work barrier(const CollectiveOptions&) override {
    begin();
    return {};
  }
  std::unique_ptr<Communicator> split(int color, int) override {
    begin();
    return color < 0 ? nullptr : std::make_unique<SelfCommunicator>(device_, failure_);
  }
  bool capturable() const override { return true; }
  void progress() override {}
  void publish_failure(std::string_view reason) noexcept override {
    if (failure_->empty()) *failure_ = rank_name(topology_, 0) + ": " + std::string(reason);
  }

 private:
  void begin() const {
    if (!failure_->empty()) throw PeerError(*failure_);
  }

  void copy(ConstSpan in, Span out, const CollectiveOptions& options) {
    if (options.after != nullptr) stream_->wait(*options.after);
    if (in.data != out.data && in.count > 0) stream_->copy(out.data, in.data, in.bytes());
  }

  Work end() {
    if (device_.host_accessible()) return {};
    if (idle_.empty()) {
      works_.push_back(std::make_unique<SelfWork>(device_, idle_));
      idle_.push_back(works_.back().get());
    }
    SelfWork& work = *idle_.back();
    idle_.pop_back();
    stream_->record(work.event());
    return Work(&work);
  }

  // The reduction of one input changes it by its scales only. They are applied by host code: on a device's
  // memory they must be 1.
  void reduce_one(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) {
    if (options.prescale == 1.0 && options.postscale == 1.0) {
      copy(in, out, options);
      return;
    }
    require(device_.host_accessible(), "scales of one rank's reduction need host memory");
    if (options.after != nullptr) stream_->wait(*options.after);
    const Reduction reduction{
        .dtype = in.dtype, .op = op, .prescale = options.prescale, .postscale = options.postscale};
    reduce(reduction, std::span(&in.data, 1), std::span(&out.data, 1), in.count);
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Topology topology_;
  std::shared_ptr<std::string> failure_;  // shared with what was split from it
  std::vector<std::unique_ptr<SelfWork>> works_;
  std::vector<SelfWork*> idle_;
  std::unique_ptr<Device> host_device_;
  std::unique_ptr<Communicator> host_;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(Device& device) {
  return std::make_unique<SelfCommunicator>(device, std::make_shared<std::string>());
}

}  // namespace rondo
