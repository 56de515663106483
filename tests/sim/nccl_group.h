// Communicators by handle, and calls between ncclGroupStart and ncclGroupEnd.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>

#include "tests/sim/comm.h"

namespace rondo::sim {

// Keeps the text for ncclGetLastError(nullptr).
ncclResult_t fail(ncclResult_t result, const std::string& why);
std::string last_failure();

ncclComm_t enter(const std::shared_ptr<Comm>& comm);
void leave(ncclComm_t handle);
// Null where there is none: `must` makes that a mistake of the caller.
std::shared_ptr<Comm> find(ncclComm_t handle, bool must = true);
// Is this memory registered with any communicator? Takes the driver's lock.
bool registered_anywhere(void* data);

// What a call that starts a communicator returns: waits for it where it blocks, at the end of a group.
ncclResult_t started(const std::shared_ptr<Comm>& comm);
// Queues a call, or keeps it for the end of the thread's group.
ncclResult_t call(ncclComm_t handle, cudaStream_t stream, Call what);

}  // namespace rondo::sim
