// A world of one rank: collectives are copies, and need no transport.
#pragma once

#include <memory>

namespace rondo {

class Communicator;
class Device;

// `device` must outlive the communicator; its memory is what the spans point to. On hosts collectives are
// done when the call returns; on other devices they are work on a stream of the communicator.
std::unique_ptr<Communicator> make_self_communicator(Device& device);

}  // namespace rondo
