#pragma once

#include <memory>

namespace rondo {
class Communicator;
}  // namespace rondo

namespace rondo::test {

class GuardedDevice;

// Collectives on a guarded device's memory, as work on a stream of their own behind CollectiveOptions::after.
// They are done by a split of `host`, which is what host() gives and which must outlive the communicator, as
// must the device. Collective over `host`. Throws InternalError for spans that are not the device's.
std::unique_ptr<Communicator> make_guarded_communicator(Communicator& host, GuardedDevice& device);

}  // namespace rondo::test
