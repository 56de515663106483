// A world of one rank: collectives are copies, and need no transport.
#pragma once

#include <memory>

namespace rondo {

class Communicator;
class Device;

// `device` must outlive the communicator; its memory is what the spans point to. Collectives run on the
// calling thread and are done when the call returns.
std::unique_ptr<Communicator> make_self_communicator(Device& device);

}  // namespace rondo
