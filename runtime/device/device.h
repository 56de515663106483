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

// Memory on a device, shared by whoever holds a copy and released with the last one. Aligned to at least 64
// bytes.
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

// A point in a stream's work. Recording again moves it. An event that was never recorded has happened.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool happened() const = 0;
  virtual void synchronize() = 0;  // blocks the host until the event has happened
};

// An in-order queue of work on one device. On hosts the queue is the calling thread: work is done when the
// call returns, and ordering calls cost nothing.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() const = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(
      const Event& event) = 0;     // work queued later starts after the event; the host does not block
  virtual void synchronize() = 0;  // blocks the host until all queued work is done
  // Copies between two places that the device reaches (host or device memory; they do not overlap).
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void fill_zero(void* to, int64_t bytes) = 0;
};

// The compute resource a rank is bound to.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // for banners: "AMD EPYC, 1 core", "NVIDIA H200"
  virtual int threads() const = 0;       // threads a host kernel may use; 1 on a GPU
  // Zeroed memory. Throws DeviceError when there is not enough; the message says how much was wanted.
  virtual Buffer allocate(int64_t bytes) = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
};

}  // namespace rondo
