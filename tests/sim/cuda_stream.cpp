// Streams and events.
#include <cuda_runtime_api.h>

#include <chrono>

#include "tests/sim/api.h"

using namespace rondo::sim;

namespace {

using Clock_ = std::chrono::steady_clock;

struct EventState {
  int device = 0;
  unsigned flags = 0;
  Mark mark;              // of the last record; a point without a stream: never recorded
  bool captured = false;  // the last record was in a capture, this one
  std::weak_ptr<Capture> capture;
  std::vector<int> frontier;
  std::shared_ptr<Clock_::time_point> time;  // when it was reached
};

// Live events, under the driver's lock.
std::map<cudaEvent_t, EventState>& events() {
  static auto* const kEvents = new std::map<cudaEvent_t, EventState>;
  return *kEvents;
}

template <class F>
cudaError_t with_event(cudaEvent_t handle, F&& f) {
  return locked([&](Driver& sim) {
    const auto found = events().find(handle);
    if (found == events().end()) {
      mistake("a call names an event that does not exist, or was destroyed");
      return cudaErrorInvalidResourceHandle;
    }
    return f(sim, found->second);
  });
}

// The host may not ask for a captured event, nor for any while its thread captures.
cudaError_t refuse(Driver& sim, const EventState& state) {
  if (const auto capture = state.capture.lock()) capture->invalidate();
  return state.captured ? cudaErrorCapturedEvent : forbid_in_capture(sim);
}

}  // namespace

namespace rondo::sim {
size_t live_events() {
  return events().size();
}
}  // namespace rondo::sim

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  return locked([&](Driver& sim) {
    const auto stream = sim.make_stream(use_device(sim), flags, std::clamp(priority, -5, 0));
    *handle = reinterpret_cast<cudaStream_t>(stream.get());
    sim.streams[*handle] = stream;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) {
  return cudaStreamCreateWithPriority(handle, 0, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return with_stream(handle, [&](Stream& stream) {
    if (stream.options().is_default) return cudaErrorInvalidResourceHandle;
    const auto kept = stream.shared_from_this();
    if (stream.capture != nullptr) stream.capture->invalidate();
    driver().retire_stream(kept);
    driver().streams.erase(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return with_stream(handle, [&](Stream& stream) {
    *device = stream.device();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return with_stream(handle, [&](Stream& stream) {
    *priority = stream.options().priority;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return with_stream(handle, [&](Stream& stream) {
    *flags = stream.options().flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return with_stream(handle, [&](Stream& stream) {
    if (stream.capture != nullptr) {
      stream.capture->invalidate();
      return cudaErrorStreamCaptureUnsupported;
    }
    if (const cudaError_t error = forbid_in_capture(driver()); error != cudaSuccess) return error;
    const Mark mark = driver().mark(stream);
    if (!mark.point.done()) return cudaErrorNotReady;
    driver().join_host(stream.device(), mark.clock, false);
    return driver().sticky;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  Mark mark;
  int device = 0;
  const cudaError_t error = with_stream(handle, [&](Stream& stream) {
    if (stream.capture != nullptr) {
      stream.capture->invalidate();
      return cudaErrorStreamCaptureUnsupported;
    }
    if (const cudaError_t refused = forbid_in_capture(driver()); refused != cudaSuccess) return refused;
    if (stream.options().is_default) driver().queue(stream, {.name = "synchronization"});
    mark = driver().mark(stream);
    device = stream.device();
    return cudaSuccess;
  });
  if (error != cudaSuccess) return error;
  host_wait(device, mark);
  return result(driver().sticky);
}

cudaError_t cudaDeviceSynchronize() {
  int device = 0;
  const cudaError_t error = locked([&](Driver& sim) {
    device = use_device(sim);
    return forbid_in_capture(sim);
  });
  if (error != cudaSuccess) return error;
  driver().drain(device);
  return result(driver().sticky);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return with_event(event, [&](Driver& sim, EventState& state) {
    const std::shared_ptr<Stream> stream = sim.find(handle);
    if (stream == nullptr) {
      mistake("cudaStreamWaitEvent names a stream that does not exist, or was destroyed");
      return cudaErrorInvalidResourceHandle;
    }
    const std::shared_ptr<Capture> capture = state.capture.lock();
    if (capture != nullptr) {
      if (stream->capture != nullptr && stream->capture != capture) return cudaErrorStreamCaptureMerge;
      capture->join(*stream, state.frontier);
      return cudaSuccess;
    }
    if (stream->capture != nullptr) {
      if (!state.captured && state.mark.point.stream == nullptr) return cudaSuccess;
      stream->capture->invalidate();
      return cudaErrorStreamCaptureIsolation;
    }
    if (state.captured) return cudaErrorCapturedEvent;  // of a capture that is over
    sim.wait(*stream, state.mark);
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return with_stream(handle, [&](Stream& stream) {
    return driver().submit(stream, [=, device = stream.device()] {
      auto clock = std::make_shared<Clock>();
      return Operation{.name = "host function",
                       .accesses = {},
                       .body =
                           [=] {
                             {
                               const std::scoped_lock lock(driver().mutex);
                               driver().join_host(device, *clock, true);
                             }
                             driver().memory.lock_thread();
                             function(data);
                             driver().memory.unlock_thread();
                           },
                       .queued = [clock](const Mark& mark) { *clock = mark.clock; }};
    });
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return locked([&](Driver& sim) {
    *handle = reinterpret_cast<cudaEvent_t>(new char);
    events()[*handle] = {
        .device = use_device(sim), .flags = flags, .mark = {}, .capture = {}, .frontier = {}, .time = {}};
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return with_event(handle, [&](Driver&, EventState&) {
    events().erase(handle);
    delete reinterpret_cast<char*>(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
  return with_event(event, [&](Driver& sim, EventState& state) {
    const std::shared_ptr<Stream> stream = sim.find(handle);
    if (stream == nullptr) {
      mistake("cudaEventRecord names a stream that does not exist, or was destroyed");
      return cudaErrorInvalidResourceHandle;
    }
    if (stream->device() != state.device) return cudaErrorInvalidResourceHandle;
    state.captured = stream->capture != nullptr;
    state.capture = stream->capture;
    if (stream->capture != nullptr) {
      state.frontier = stream->frontier;
      return cudaSuccess;
    }
    if ((state.flags & cudaEventDisableTiming) == 0) {
      state.time = std::make_shared<Clock_::time_point>();
      sim.queue(*stream,
                {.name = "event", .accesses = {}, .body = [time = state.time] { *time = Clock_::now(); }});
    } else if (stream->options().is_default) {
      sim.queue(*stream, {.name = "event"});
    }
    state.mark = sim.mark(*stream);
    return sim.sticky;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return with_event(event, [&](Driver& sim, EventState& state) {
    if (const cudaError_t error = refuse(sim, state); error != cudaSuccess) return error;
    if (!state.mark.point.done()) return cudaErrorNotReady;
    sim.join_host(state.device, state.mark.clock, false);
    return sim.sticky;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Mark mark;
  int device = 0;
  const cudaError_t error = with_event(event, [&](Driver& sim, EventState& state) {
    if (const cudaError_t refused = refuse(sim, state); refused != cudaSuccess) return refused;
    mark = state.mark;
    device = state.device;
    return cudaSuccess;
  });
  if (error != cudaSuccess) return error;
  host_wait(device, mark);
  return result(driver().sticky);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return with_event(start, [&](Driver&, EventState& first) {
    const auto last = events().find(end);
    if (last == events().end()) return cudaErrorInvalidResourceHandle;
    if (first.time == nullptr || last->second.time == nullptr) return cudaErrorInvalidResourceHandle;
    if (!first.mark.point.done() || !last->second.mark.point.done()) return cudaErrorNotReady;
    *milliseconds = std::chrono::duration<float, std::milli>(*last->second.time - *first.time).count();
    return cudaSuccess;
  });
}

}  // extern "C"
