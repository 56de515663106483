// World: what a program makes first. It finds the other ranks, and binds this one to its device.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/launch/binding.h"

namespace rondo {

class Communicator;
class Device;
class KernelBackend;
struct CostModel;
struct Fact;

struct WorldOptions {
  // Of rank 0: a file with what collectives cost here, see collectives_file.h. Empty: the one that rank 0's
  // environment variable RONDO_COLLECTIVES names, if any.
  std::string collectives_file = {};
};

class World {
 public:
  // Collective. Under a launcher (mpirun, srun, ...) joins the ranks it started; alone makes a world of one
  // without touching MPI. Checks that all ranks run the same build and agrees on the instruction set of their
  // kernels. Throws FileError for a wrong collectives file. While it lives, an exception that leaves main on
  // any rank ends the whole job with one message (see supervisor.h), and so does a signal to stop. One at a
  // time in a process; throws InternalError for a second.
  World(int argc, char** argv, const WorldOptions& options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const;
  int size() const;
  Communicator& comm();
  const std::string& program() const;  // argv[0] without its folder: the beginning of messages

  // Chooses the device. Local, so a wrong request can be answered alone; call it before device() and
  // backend(), which otherwise bind with the defaults. Throws what bind_device does, and InternalError when
  // bound already.
  void bind(const BindOptions& options);
  Device& device();
  KernelBackend& backend();
  // Those of the rank's whole set, backend() the first: BindOptions::devices_per_rank.
  std::vector<KernelBackend*> backends();
  // The communicator of the ranks' device memory: on host devices comm() itself. The first call is collective
  // (it connects the devices, see connect_devices, and throws what that does); the first one binds, too,
  // where nothing is bound.
  Communicator& device_comm();

  // Collective. Runs a local action on every rank. If it throws on some, every rank throws: the bare error
  // where all say the same, else one that names the ranks.
  void all_or_none(const std::string& what, const std::function<void()>& action);
  // Collective. Throws the same MismatchError on every rank when a fact differs.
  void agree_on(std::span<const Fact> facts);

  // Collective, and takes a few seconds: measures what collectives cost among these ranks. Equal on all
  // ranks. Throws Unavailable for a world of one.
  CostModel measure_collectives();

  // Number of the signal that asked this rank to stop, 0 while none has: for callbacks that vote to stop.
  // Each rank sees its own only.
  int stop_signal() const;

  // What run() does with an exception, for programs that catch their own: see Supervisor::report_failure.
  int report_failure(const std::exception& error) noexcept;

  // For the beginning of a log, a few lines: version, ranks and hosts, communicator, device, backend,
  // libraries. After device_comm() it names the communicator of the devices.
  std::string banner();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The last part of a path: how a program names itself in messages.
std::string program_name(const char* path);

}  // namespace rondo
