// Device, Stream, Event, Buffer: where memory lives and in which order work on it happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace rondo {

class Device;

enum class DeviceKind : uint8_t { kCpu, kCuda };

// Memory on a device, or host memory that a device reaches, shared by whoever holds a copy and released with
// the last one. Aligned to at least 64 bytes. The last holder lets go only when all queued work on it is
// done.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, int64_t bytes, std::shared_ptr<void> owner)
      : data_(data), bytes_(bytes), owner_(std::move(owner)) {}

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  explicit operator bool() const { return owner_ != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::shared_ptr<void> owner_;
};

// A point in a stream's work. Recording again moves it. An event that was never recorded has happened. May be
// asked and waited for by any thread; record one from one thread at a time. Once it has happened, the host
// sees what the work before it wrote to host memory. Raises DeviceError when that work failed.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool happened() const = 0;  // never blocks
  virtual void synchronize() = 0;     // blocks the host until the event has happened
};

class Stream;

// Work that was captured from a stream and is queued as a whole, any number of times. Whatever it reads,
// writes or waits for lies where it lay at the capture: the owner keeps that memory.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;  // the streams it was queued on have been synchronized
  // On the device of the capture, behind the stream's earlier work.
  virtual void launch(Stream& stream) = 0;
};

// A capture under way. What the stream is given until end() is recorded and does not run; so is what other
// streams are given behind an event that the stream recorded, and the stream must wait for that before end().
// Meanwhile the calling thread neither allocates, nor asks or waits for events and streams, nor lets a
// captured stream wait for an event of before: those raise DeviceError and spoil the capture, as copies of
// memory that is not of allocate_host do. Other threads are not concerned.
class Capture {
 public:
  virtual ~Capture() = default;  // without end(): what was recorded is thrown away
  // Once, on the thread that began. Throws DeviceError where the capture was spoilt, OutOfMemory.
  virtual std::unique_ptr<CapturedWork> end() = 0;
};

// An in-order queue of work on one device, used by one thread at a time. Every call below queues its work and
// returns, apart from synchronize(); two streams are ordered only where one waits for an event of the other.
// On hosts the queue is the calling thread: work is done when the call returns, and ordering calls cost
// nothing. A failure of earlier work is raised as DeviceError by whichever call meets it.
class Stream {
 public:
  virtual ~Stream() = default;  // the caller has synchronized
  virtual Device& device() const = 0;
  virtual void record(Event& event) = 0;
  // Work queued later starts after what `event` was last recorded behind; the host does not block. The event
  // may be recorded again, or destroyed, right away.
  virtual void wait(const Event& event) = 0;
  virtual void synchronize() = 0;  // blocks the host until all queued work is done
  // Copies between two places that the device reaches (they do not overlap): its memory, its allocate_host
  // memory, and any other host memory. Queued: `from` is read and `to` is written when the stream gets there.
  // Until then, which an event or synchronize() tells, the host neither changes nor frees either, and finds
  // no result in `to`. With host memory that is not of allocate_host the call may also block until the copy
  // is done: not for use within a step.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void fill_zero(void* to, int64_t bytes) = 0;  // of `to` as in copy
  // What it is given now is recorded by a capture, its own or that of a stream it waited for.
  virtual bool capturing() const { return false; }
};

// Memory of a device as its allocator sees it, in bytes; 0 where it is not known.
struct DeviceMemory {
  int64_t total = 0;      // of the device
  int64_t available = 0;  // what allocate could still give, fragmentation aside
  int64_t in_use = 0;     // by buffers of this process
  int64_t peak = 0;       // the most that ever was in use
};

// The compute resource a rank is bound to. Streams, events and memory are made and released by any thread.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // for banners: "AMD EPYC, 1 core", "NVIDIA H200"
  virtual int threads() const = 0;       // threads a host kernel may use; 1 on a GPU
  // Memory for kernels and collectives, zeroed when the call returns, which may block until the device is
  // idle: not for use within a step. Host code may touch it only where host_accessible(). Throws OutOfMemory.
  virtual Buffer allocate(int64_t bytes) = 0;
  // Zeroed host memory that copies of this device's streams reach while the host goes on: pinned on GPUs,
  // ordinary memory on hosts. Kernels may not be given it. Throws OutOfMemory.
  virtual Buffer allocate_host(int64_t bytes) = 0;
  // Host code may read and write allocate() memory, and work is done when a stream's call returns.
  virtual bool host_accessible() const { return kind() == DeviceKind::kCpu; }
  virtual DeviceMemory memory() const { return {}; }
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // Begins to capture what a stream of this device is given. Null where the device cannot.
  virtual std::unique_ptr<Capture> capture(Stream& /*stream*/) { return nullptr; }
};

}  // namespace rondo
