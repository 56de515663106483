// The implementations of an in-place all-reduce (f32, sum) that allreduce_bench compares.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"

namespace rondo {

class Device;
class MpiSession;

namespace bench {

class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual std::string_view name() const = 0;  // in tables and files: "rondo", "mpi"
  // Where it works in place; room for the largest message.
  virtual float* data() = 0;
  // Sums the first `count` elements over all ranks. Collective, and blocks until this rank has the result.
  virtual void run(int64_t count) = 0;
  // False for a yardstick that moves as many bytes but sums nothing.
  virtual bool sums() const { return true; }
};

// What the contestants of one process share.
struct Field {
  std::shared_ptr<MpiSession> session;
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> comm;
  Buffer user;           // ordinary memory, as a program that knows nothing of communicators has
  Buffer target;         // of memcpy
  int64_t capacity = 0;  // elements of each buffer
};

// Collective. Buffers hold max_bytes each and have been written once, so that their pages exist.
Field make_field(int64_t max_bytes);

// The names that make_contestants knows in this build, in the order in which they take turns.
std::vector<std::string> contestant_names();

// Collective. Throws InvalidArgument for a name that contestant_names() does not list.
std::vector<std::unique_ptr<Contestant>> make_contestants(const std::vector<std::string>& names,
                                                          Field& field);

// Gloo over TCP, connected by way of MPI. Its interface is GLOO_SOCKET_IFNAME's, else loopback on one host
// and the host name's across hosts. Defined where Gloo was found.
std::unique_ptr<Contestant> make_gloo_contestant(Field& field);

}  // namespace bench
}  // namespace rondo
