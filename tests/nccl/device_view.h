// A communicator of device memory as one of host memory, for the conformance suite: every call copies its
// spans to the device and, when it is waited for, back. Spans that coincide or lie within each other do so on
// the device.
#pragma once

#include <memory>

namespace rondo {

class Communicator;
class Device;

// Owns `inner`; `device` outlives it.
std::unique_ptr<Communicator> view_from_host(std::unique_ptr<Communicator> inner, Device& device);

}  // namespace rondo
