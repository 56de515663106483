// Collectives on a device's memory through a communicator of host memory: for devices that cannot reach each
// other otherwise, such as one GPU that several ranks share.
#pragma once

#include <memory>

namespace rondo {

class Communicator;
class Device;

// Spans are memory of `device`; each collective copies its input to the host, runs there, and copies the
// result back. The host blocks in every call until the other ranks have called too. Errors are those of
// `host`, which is also its host(); `host` and `device` outlive the communicator.
std::unique_ptr<Communicator> make_staged_communicator(Communicator& host, Device& device);

}  // namespace rondo
