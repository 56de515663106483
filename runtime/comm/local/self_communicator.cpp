#include "runtime/comm/local/self_communicator.h"

#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/arguments.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/topology.h"
#include "runtime/device/device.h"

namespace rondo {
namespace {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator(Device& device, std::shared_ptr<std::string> failure)
      : device_(device), stream_(device.make_stream()), failure_(std::move(failure)) {
    const std::string host = this_host_name();
    topology_ = make_topology(std::span(&host, 1), 0);
  }

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const Topology& topology() const override { return topology_; }
  std::string name() const override { return "one rank"; }
  Buffer allocate(int64_t bytes) override { return device_.allocate(bytes); }

  Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) override {
    begin();
    check_all_reduce(in, out, op, options);
    return reduce_one(in, out, op, options);
  }
  Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                        const CollectiveOptions& options) override {
    begin();
    check_all_reduce_group(pairs, op, options);
    for (const SpanPair& pair : pairs) reduce_one(pair.in, pair.out, op, options);
    return {};
  }
  Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                      const CollectiveOptions& options) override {
    begin();
    check_reduce_scatter(in, out, counts, op, 0, 1, options);
    return reduce_one(in, out, op, options);
  }
  Work broadcast(Span buffer, int root, const CollectiveOptions& options) override {
    begin();
    check_broadcast(buffer, root, 1);
    return copy(buffer, buffer, options);
  }
  Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                    const CollectiveOptions& options) override {
    begin();
    check_all_gather_v(in, out, counts, 0, 1);
    return copy(in, out, options);
  }
  Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                    std::span<const int64_t> receive_counts, const CollectiveOptions& options) override {
    begin();
    check_all_to_all_v(in, out, send_counts, receive_counts, 0, 1);
    return copy(in, out, options);
  }
  Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                const CollectiveOptions& options) override {
    begin();
    check_gather_v(in, out, counts, root, 0, 1);
    return copy(in, out, options);
  }
  Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                 const CollectiveOptions& options) override {
    begin();
    check_scatter_v(in, out, counts, root, 0, 1);
    return copy(in, out, options);
  }
  Work barrier(const CollectiveOptions&) override {
    begin();
    return {};
  }
  std::unique_ptr<Communicator> split(int color, int) override {
    begin();
    return color < 0 ? nullptr : std::make_unique<SelfCommunicator>(device_, failure_);
  }
  void progress() override {}
  void publish_failure(std::string_view reason) noexcept override {
    if (failure_->empty()) *failure_ = rank_name(topology_, 0) + ": " + std::string(reason);
  }

 private:
  void begin() const {
    if (!failure_->empty()) throw PeerError(*failure_);
  }

  Work copy(ConstSpan in, Span out, const CollectiveOptions& options) {
    if (options.after != nullptr) stream_->wait(*options.after);
    if (in.data != out.data && in.count > 0) {
      stream_->copy(out.data, in.data, in.bytes());
      stream_->synchronize();
    }
    return {};
  }

  // The reduction of one input changes it by its scales only. They are applied by host code: on a device's
  // memory they must be 1.
  Work reduce_one(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options) {
    if (options.prescale == 1.0 && options.postscale == 1.0) return copy(in, out, options);
    require(device_.kind() == DeviceKind::kCpu, "scales of one rank's reduction need host memory");
    if (options.after != nullptr) stream_->wait(*options.after);
    const Reduction reduction{
        .dtype = in.dtype, .op = op, .prescale = options.prescale, .postscale = options.postscale};
    reduce(reduction, std::span(&in.data, 1), std::span(&out.data, 1), in.count);
    return {};
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Topology topology_;
  std::shared_ptr<std::string> failure_;  // shared with what was split from it
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(Device& device) {
  return std::make_unique<SelfCommunicator>(device, std::make_shared<std::string>());
}

}  // namespace rondo
