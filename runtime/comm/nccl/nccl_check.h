#pragma once

#include <nccl.h>

#include <string>

namespace rondo::nccl {

// "ncclAllReduce failed: unhandled system error (...)", with NCCL's last message. `comm` may be null.
std::string failure_text(ncclResult_t result, const char* call, ncclComm_t comm);

}  // namespace rondo::nccl
