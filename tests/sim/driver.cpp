#include "tests/sim/driver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/sim/graph.h"
#include "tests/sim/mistakes.h"

namespace rondo::sim {
namespace {

struct ThreadState {
  int device = -1;
  cudaError_t last = cudaSuccess;
  Clock known;
};

ThreadState& this_thread() {
  thread_local ThreadState state;
  return state;
}

uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

bool overlap(const std::byte* a, size_t a_bytes, const std::byte* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

Driver& driver() {
  static Driver* const kDriver = new Driver;
  return *kDriver;
}

Driver::Driver()
    : config(read_config()),
      memory(config.devices, config.memory, !config.checker_only),
      devices(static_cast<size_t>(config.devices)),
      seed(config.seed) {}

int current_device() {
  return this_thread().device;
}
void set_current_device(int device) {
  this_thread().device = device;
}

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) this_thread().last = error;
  return error;
}

cudaError_t last_error(bool clear) {
  const cudaError_t error = this_thread().last;
  if (clear) this_thread().last = driver().sticky;
  return error;
}

cudaError_t ready() {
  const Driver& sim = driver();
  if (sim.config.no_driver) return cudaErrorInsufficientDriver;
  if (sim.config.driver_version != 0 && sim.config.driver_version / 1000 < CUDART_VERSION / 1000) {
    return cudaErrorInsufficientDriver;
  }
  if (sim.config.devices == 0) return cudaErrorNoDevice;
  return sim.sticky;
}

void host_wait(int device, const Mark& mark) {
  mark.point.wait();
  const std::scoped_lock lock(driver().mutex);
  ++driver().counters.host_waits;
  driver().join_host(device, mark.clock, true);
}

int Driver::delay(Stamp stamp) const {
  if (config.max_delay_us == 0) return 0;
  const uint64_t draw = mix(seed ^ mix(stamp.stream * 0x10001u + mix(stamp.tick)));
  const int longest = config.max_delay_us * (draw % 97 == 0 ? 10 : 1);
  return (draw >> 8) % 3 == 0 ? static_cast<int>((draw >> 16) % static_cast<uint64_t>(longest + 1)) : 0;
}

void Driver::order_with_default(Stream& stream, Task& task) {
  Device& device = devices[static_cast<size_t>(stream.device())];
  if (stream.options().is_default) {
    for (const auto& other : device.streams) {
      if (!other->options().blocking || other->capture != nullptr) continue;
      task.after.push_back({other, other->submitted});
      stream.clock.join(other->clock);
    }
  } else if (stream.options().blocking && device.default_stream != nullptr &&
             stream.default_seen < device.default_stream->submitted) {
    stream.default_seen = device.default_stream->submitted;
    task.after.push_back({device.default_stream, stream.default_seen});
    stream.clock.join(device.default_stream->clock);
  }
}

Mark Driver::queue(Stream& stream, Operation operation) {
  Task task;
  order_with_default(stream, task);
  const Stamp stamp{stream.options().index, ++stream.submitted};
  stream.clock.join(host_clock(stream.device()));
  stream.clock.advance(stamp);  // first: an operation does not clash with itself
  task.opens = check(stream, operation, stamp, stream.clock);
  task.tick = stamp.tick;
  task.delay_us = delay(stamp);
  task.body = std::move(operation.body);
  if (operation.kernel) {
    ++counters.kernels;
    const int64_t count = ++devices[static_cast<size_t>(stream.device())].kernels;
    if (config.hang.where == stream.device() && count == config.hang.at) {
      task.body = [] {
        std::mutex never;
        std::unique_lock lock(never);
        std::condition_variable().wait(lock, [] { return false; });
      };
    }
    if (config.kernel_error.where == stream.device() && count == config.kernel_error.at) {
      task.body = [this] {
        const std::scoped_lock lock(mutex);
        sticky = cudaErrorIllegalAddress;
      };
    }
  }
  Mark made{{stream.shared_from_this(), stamp.tick}, stream.clock};
  if (operation.queued) operation.queued(made);
  stream.push(std::move(task));
  return made;
}

cudaError_t Driver::submit(Stream& stream, const OperationMaker& make, Mark* made) {
  if (sticky != cudaSuccess) return sticky;
  if (stream.capture != nullptr) return stream.capture->add(stream, make);
  Operation operation = make();
  if (operation.kernel) ++counters.launches;
  const Mark mark = queue(stream, std::move(operation));
  if (made != nullptr) *made = mark;
  return cudaSuccess;
}

Mark Driver::mark(Stream& stream) {
  return {{stream.shared_from_this(), stream.submitted}, stream.clock};
}

void Driver::wait(Stream& stream, const Mark& mark) {
  stream.clock.join(mark.clock);
  if (mark.point.stream.get() == &stream || mark.point.done()) return;
  Task task;
  task.tick = ++stream.submitted;
  task.after.push_back(mark.point);
  stream.push(std::move(task));
}

Clock Driver::host_clock(int device) const {
  Clock clock = devices[static_cast<size_t>(device)].host;
  clock.join(this_thread().known);
  return clock;
}

void Driver::join_host(int device, const Clock& clock, bool blocked) {
  this_thread().known.join(clock);
  if (blocked) devices[static_cast<size_t>(device)].host.join(clock);
  publish(host_clock(device));
}

// Results for the host appear, and sources of uploads may change, once the host has waited: not earlier,
// however fast the stream was.
void Driver::publish(const Clock& clock) {
  for (auto it = pending.begin(); it != pending.end();) {
    if (!clock.covers(it->stamp)) {
      ++it;
      continue;
    }
    if (it->to_host) {
      if (!*it->direct) std::memcpy(it->host, it->kept->data(), it->bytes);
    } else if (std::memcmp(it->host, it->kept->data(), it->bytes) != 0) {
      mistake(std::string("the host wrote into the pinned source of a queued ") + it->operation + " of " +
              std::to_string(it->bytes) + " bytes before it had waited for the copy");
    }
    it = pending.erase(it);
  }
}

// A new copy from or to pinned memory meets older ones in flight there.
void Driver::before_host_copy(std::byte* host, size_t bytes, bool write) {
  for (auto it = pending.begin(); it != pending.end();) {
    if (!overlap(host, bytes, it->host, it->bytes)) {
      ++it;
    } else if (it->to_host) {
      // The device itself reads or overwrites a result: from here on it lies where it belongs.
      if (!*it->direct && *it->done) std::memcpy(it->host, it->kept->data(), it->bytes);
      *it->direct = true;
      ++it;
    } else {
      if (std::memcmp(it->host, it->kept->data(), it->bytes) != 0) {
        mistake(std::string("the host wrote into the pinned source of a queued ") + it->operation + " of " +
                std::to_string(it->bytes) + " bytes before it had waited for the copy");
      }
      it = write ? pending.erase(it) : std::next(it);
    }
  }
}

std::shared_ptr<Stream> Driver::default_stream(int device) {
  Device& on = devices[static_cast<size_t>(device)];
  if (on.default_stream == nullptr) {
    on.default_stream = Stream::start({.device = device, .index = components_++, .is_default = true});
  }
  return on.default_stream;
}

std::shared_ptr<Stream> Driver::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    const int device = std::max(current_device(), 0);
    return default_stream(device);
  }
  const auto found = streams.find(handle);
  return found == streams.end() ? nullptr : found->second;
}

std::shared_ptr<Stream> Driver::make_stream(int device, unsigned flags, int priority) {
  Device& on = devices[static_cast<size_t>(device)];
  Stream::Options options;
  options.device = device;
  options.number = ++on.streams_made;
  options.blocking = (flags & cudaStreamNonBlocking) == 0;
  options.priority = priority;
  options.flags = flags;
  if (!free_components_.empty()) {
    const auto reused = free_components_.extract(free_components_.begin());
    options.index = reused.key();
    options.first = reused.mapped();
  } else {
    options.index = components_++;
  }
  auto stream = Stream::start(options);
  on.streams.push_back(stream);
  return stream;
}

void Driver::retire_stream(const std::shared_ptr<Stream>& stream) {
  std::erase(devices[static_cast<size_t>(stream->device())].streams, stream);
  stream->close();
  if (stream->completed() == stream->submitted)
    free_components_.emplace(stream->options().index, stream->submitted);
}

bool Driver::takes_part_in_capture(int device) const {
  for (const auto& stream : devices[static_cast<size_t>(device)].streams) {
    if (stream->capture != nullptr && stream->capture->mode() == cudaStreamCaptureModeGlobal) return true;
  }
  return false;
}

bool Driver::out_of_memory_now() {
  ++counters.allocations;
  ++allocations;
  return allocations == config.out_of_memory_at || allocations == failing_allocation;
}

void Driver::drain(int device) {
  std::vector<Mark> marks;
  {
    const std::scoped_lock lock(mutex);
    Device& on = devices[static_cast<size_t>(device)];
    if (on.default_stream != nullptr) marks.push_back(mark(*on.default_stream));
    for (const auto& stream : on.streams) marks.push_back(mark(*stream));
  }
  for (const Mark& each : marks) host_wait(device, each);
}

}  // namespace rondo::sim
