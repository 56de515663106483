// Lanes: run the passes of plans that are laid over several devices.
#pragma once

#include <memory>
#include <span>

#include "runtime/kernels/kernel.h"
#include "runtime/tensor/parameter.h"

namespace rondo {

class KernelBackend;
struct Plan;

// One lane for each device. The work of a pass begins behind what `on.stream` was given before, and work that
// the stream is given later begins behind the pass, on whichever device. One pass at a time.
class Lanes {
 public:
  virtual ~Lanes() = default;
  // Makes ready for passes of the plan, so that they allocate nothing. No pass is underway.
  virtual void prepare(Plan& plan) = 0;
  // `on` is of the first device, `scratch` is that of the others. When a step throws, nothing runs any more
  // on any device once the exception leaves.
  virtual void run_forward(const Plan& plan, const Execution& on, std::span<void* const> scratch) = 0;
  virtual void run_backward(const Plan& plan, const Execution& on, std::span<void* const> scratch,
                            GradSink& sink) = 0;
};

// `backends` are of the rank's devices, all of one kind, and outlive the lanes. Devices with queues are all
// fed by the calling thread, and wait for each other by events. Hosts, whose work is done by the thread that
// asks for it, get a thread for each device but the first.
std::unique_ptr<Lanes> make_lanes(std::span<KernelBackend* const> backends);

}  // namespace rondo
