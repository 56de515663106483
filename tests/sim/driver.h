// The one object that stands for the driver: devices, their memory and streams, and what is known of the
// order of work. Made by the first call, never destroyed (stream threads outlive main, as work on a device
// does).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/config.h"
#include "tests/sim/control.h"
#include "tests/sim/memory.h"
#include "tests/sim/stream.h"

namespace rondo::sim {

struct Access {
  const void* data = nullptr;
  size_t bytes = 0;
  bool write = false;
};

// Something to run on a stream.
struct Operation {
  const char* name = "";  // outlives the program
  std::vector<Access> accesses = {};
  std::function<void()> body = {};
  bool peers = false;                            // the accesses may lie on other devices
  bool kernel = false;                           // counts for injected failures of kernels
  std::function<void(const Mark&)> queued = {};  // called under the lock, before the task can run
};
// Makes an operation: at once, or with each launch of the graph that captured it.
using OperationMaker = std::function<Operation()>;

struct Device {
  std::shared_ptr<Stream> default_stream;  // made when it is first used
  Clock host;                              // what the host threads that drive this device have waited for
  std::vector<std::shared_ptr<Stream>> streams;
  uint64_t streams_made = 0;
  int64_t kernels = 0;
  bool touched = false;  // a call made it this process's context
};

// A copy between the host and the device that the host has not waited for yet.
struct PendingCopy {
  std::byte* host = nullptr;
  size_t bytes = 0;
  Stamp stamp;
  bool to_host = false;
  std::shared_ptr<std::vector<std::byte>> kept;  // to host: the result; from host: what was there
  std::shared_ptr<bool> direct;  // to host: the result goes there at once, not when it is known
  std::shared_ptr<bool> done;    // to host: it is in `kept`
  const char* operation = "";
};

class Driver {
 public:
  Driver();

  const Config config;
  std::mutex mutex;  // of everything below
  Memory memory;
  std::vector<Device> devices;
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::list<PendingCopy> pending;
  Counters counters;
  cudaError_t sticky = cudaSuccess;
  uint64_t seed = 0;
  int64_t allocations = 0;
  int64_t failing_allocation = 0;  // besides the configuration's

  // The functions below want the lock held, except where they say otherwise.

  // Queues an operation, or adds it to the capture the stream is in. `made` in a capture is empty.
  cudaError_t submit(Stream& stream, const OperationMaker& make, Mark* made = nullptr);
  Mark queue(Stream& stream, Operation operation);
  Mark mark(Stream& stream);                    // of all that is queued
  void wait(Stream& stream, const Mark& mark);  // the stream waits
  // Host code knows that this has happened. The host threads that drive one device count as one where a
  // thread blocks for it (the locks between them cannot be seen); what a thread merely asks, only it knows.
  void join_host(int device, const Clock& clock, bool blocked);
  Clock host_clock(int device) const;
  std::shared_ptr<Stream> default_stream(int device);
  // The stream of a handle on the current device when it is null; null and an error when there is none.
  std::shared_ptr<Stream> find(cudaStream_t handle);
  std::shared_ptr<Stream> make_stream(int device, unsigned flags, int priority);
  void retire_stream(const std::shared_ptr<Stream>& stream);
  // Returns the bases of the device allocations it touches.
  std::vector<uintptr_t> check(const Stream& stream, const Operation& operation, Stamp stamp,
                               const Clock& before);
  void before_host_copy(std::byte* host, size_t bytes, bool write);
  bool takes_part_in_capture(int device) const;  // a stream of the device captures in global mode
  bool out_of_memory_now();                      // counts an allocation

  // Takes the lock: waits for all of a device's work.
  void drain(int device);

 private:
  void order_with_default(Stream& stream, Task& task);
  void publish(const Clock& clock);
  int delay(Stamp stamp) const;
  void complain(const Stream& stream, const Operation& operation, const Access& access,
                const std::string& why);

  std::map<uint32_t, uint64_t> free_components_;  // ended streams' components, and how far they came
  uint32_t components_ = 0;
};

Driver& driver();

// The calling thread's current device; -1 when it has chosen none.
int current_device();
void set_current_device(int device);

// cudaSuccess, or why no call can succeed (no driver, too old, sticky error).
cudaError_t ready();
// Keeps the error for cudaGetLastError.
cudaError_t result(cudaError_t error);
cudaError_t last_error(bool clear);

// The calling thread waits for a mark without the lock, then knows of it.
void host_wait(int device, const Mark& mark);

}  // namespace rondo::sim
