// Gloo as a contestant of allreduce_bench.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>

#include "bench/allreduce_contestants.h"
#include "runtime/comm/mpi/mpi_check.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/comm/topology.h"

namespace rondo::bench {
namespace {

// Gloo's ranks find each other through a store of keys and values. Here every value goes to all ranks as an
// MPI message "key\0value", and get() receives until the wanted one has come.
class MpiStore final : public gloo::rendezvous::Store {
 public:
  MpiStore() {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    comm_ = MpiCommHandle(comm);
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
  }

  void set(const std::string& key, const std::vector<char>& data) override {
    std::vector<char> message(key.begin(), key.end());
    message.push_back('\0');
    message.insert(message.end(), data.begin(), data.end());
    values_[key] = data;
    send_to_all(std::move(message));
  }
  std::vector<char> get(const std::string& key) override {
    while (values_.count(key) == 0) receive();
    return values_[key];
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& /*timeout*/) override {
    wait(keys);
  }

  // Collective. Nothing is on its way afterwards: an empty message from each rank is its last.
  void close() {
    send_to_all({});
    while (ended_ < size_ - 1) receive();
    for (auto& [request, message] : sent_) check_mpi(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  }

 private:
  void send_to_all(std::vector<char> message) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      auto& [request, kept] = sent_.emplace_back(MPI_REQUEST_NULL, message);
      check_mpi(
          MPI_Isend(kept.data(), static_cast<int>(kept.size()), MPI_CHAR, peer, 0, comm_.get(), &request),
          "MPI_Isend");
    }
  }
  void receive() {
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check_mpi(MPI_Mprobe(MPI_ANY_SOURCE, 0, comm_.get(), &message, &status), "MPI_Mprobe");
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::vector<char> text(static_cast<size_t>(length));
    check_mpi(MPI_Mrecv(text.data(), length, MPI_CHAR, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
    if (text.empty()) {
      ++ended_;
      return;
    }
    const std::string key(text.data());
    values_[key] = {text.begin() + static_cast<std::ptrdiff_t>(key.size()) + 1, text.end()};
  }

  MpiCommHandle comm_;
  int rank_ = 0;
  int size_ = 1;
  int ended_ = 0;
  std::map<std::string, std::vector<char>> values_;
  std::list<std::pair<MPI_Request, std::vector<char>>> sent_;
};

gloo::transport::tcp::attr network(const Topology& topology) {
  gloo::transport::tcp::attr where;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface != nullptr) {
    where.iface = interface;
  } else if (topology.hosts() == 1) {
    where.hostname = "127.0.0.1";
  } else {
    where.hostname = this_host_name();
  }
  return where;
}

class GlooContestant final : public HostContestant {
 public:
  explicit GlooContestant(Field& field) : field_(field) {
    auto device = gloo::transport::tcp::CreateDevice(network(field.comm().topology()));
    auto context = std::make_shared<gloo::rendezvous::Context>(field.comm().rank(), field.comm().size());
    MpiStore store;
    context->connectFullMesh(store, device);
    store.close();
    context_ = std::move(context);
  }
  std::string_view name() const override { return "gloo"; }

 protected:
  float* data() override { return field_.user.as<float>(); }
  void run_once(int64_t count) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data(), static_cast<size_t>(count));  // without an input: in place
    void (*const sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
    options.setReduceFunction(sum);
    gloo::allreduce(options);
  }

 private:
  Field& field_;
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

std::unique_ptr<Contestant> make_gloo_contestant(Field& field) {
  const std::lock_guard lock(field.session->lock());
  return std::make_unique<GlooContestant>(field);
}

}  // namespace rondo::bench
