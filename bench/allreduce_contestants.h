// The implementations of an in-place all-reduce (f32, sum) that allreduce_bench compares.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/launch/binding.h"

namespace rondo {

class MpiSession;

namespace bench {

class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual std::string_view name() const = 0;  // in tables and files: "rondo", "mpi"
  // Fills the memory in which it works in place, which has room for the largest message, and reads it.
  virtual void put(const float* values, int64_t count) = 0;
  virtual void get(float* values, int64_t count) = 0;
  // Sums the first `count` elements over all ranks, so many times. Collective, and blocks until this rank has
  // the result: of each call on hosts, of the last on GPUs.
  virtual void run(int64_t count, int calls) = 0;
  // False for a yardstick that moves as many bytes but sums nothing.
  virtual bool sums() const { return true; }
};

// One whose memory the host reaches.
class HostContestant : public Contestant {
 public:
  void put(const float* values, int64_t count) final;
  void get(float* values, int64_t count) final;
  void run(int64_t count, int calls) final {
    for (int i = 0; i < calls; ++i) run_once(count);
  }

 protected:
  virtual float* data() = 0;
  virtual void run_once(int64_t count) = 0;
};

// What the contestants of one process share.
struct Field {
  std::shared_ptr<MpiSession> session;
  std::unique_ptr<Device> host_device;
  std::unique_ptr<Communicator> host;  // of the ranks' host memory
  Binding binding;                     // the device whose memory is summed
  std::unique_ptr<Communicator> gpus;  // of the ranks' GPUs; null: host memory is summed
  std::unique_ptr<Stream> stream;      // of the GPU
  Buffer user;    // of the device: ordinary memory, as a program that knows nothing of communicators has
  Buffer target;  // of copies, likewise
  int64_t capacity = 0;  // elements of each buffer

  Communicator& comm() const { return gpus ? *gpus : *host; }
};

// Collective. Buffers hold max_bytes each and have been written once, so that their pages exist. Throws what
// bind_device and connect_devices do.
Field make_field(int64_t max_bytes, const BindOptions& options);

// The names that make_contestants knows in this build, in the order in which they take turns. On GPUs there
// is less to compare with.
std::vector<std::string> contestant_names(DeviceChoice device);

// Collective. Throws InvalidArgument for a name that contestant_names() does not list.
std::vector<std::unique_ptr<Contestant>> make_contestants(const std::vector<std::string>& names,
                                                          Field& field);

// Gloo over TCP, connected by way of MPI. Its interface is GLOO_SOCKET_IFNAME's, else loopback on one host
// and the host name's across hosts. Defined where Gloo was found.
std::unique_ptr<Contestant> make_gloo_contestant(Field& field);

}  // namespace bench
}  // namespace rondo
