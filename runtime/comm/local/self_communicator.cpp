#include "runtime/comm/local/self_communicator.h"

#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/arguments.h"
#include "runtime/comm/communicator.h"
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
    check_all_reduce(in, out, op);
    return copy(in, out, options);
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
