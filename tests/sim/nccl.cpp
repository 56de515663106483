// The entry points of NCCL but for its collectives, which are in nccl_group.cpp.
#include <nccl.h>

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "tests/sim/api.h"
#include "tests/sim/bootstrap.h"
#include "tests/sim/comm.h"
#include "tests/sim/device_memory.h"
#include "tests/sim/nccl_group.h"

using namespace rondo::sim;

namespace {

bool blocks(const ncclConfig_t* config) {
  return config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking != 0;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const int wanted = driver().config.nccl_version;
  *version = wanted != 0 ? wanted : NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t handle) {
  thread_local std::string text;
  const std::shared_ptr<Comm> comm = find(handle, false);
  text = comm == nullptr || comm->last_error().empty() ? last_failure() : comm->last_error();
  return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::string why;
  const ncclResult_t result = open_bootstrap(*id, why);
  return result == ncclSuccess ? result : fail(result, why);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *handle = nullptr;
  if (ready() != cudaSuccess) return ncclUnhandledCudaError;
  if (size < 1 || rank < 0 || rank >= size)
    return fail(ncclInvalidArgument, "rank or number of ranks is wrong");
  int device = 0;
  {
    const std::scoped_lock lock(driver().mutex);
    device = use_device(driver());
  }
  const auto comm = std::make_shared<Comm>(rank, size, device, blocks(config));
  *handle = enter(comm);
  comm->start([id](Comm& self, const Member& own, std::vector<Member>& table, std::string& why) {
    return meet_at(id, own, {&self.aborted, std::chrono::steady_clock::now() + std::chrono::minutes(10)},
                   table, why);
  });
  return started(comm);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  *made = nullptr;
  const std::shared_ptr<Comm> parent = find(handle);
  if (parent == nullptr) return ncclInvalidArgument;
  const uint64_t turn = parent->take_turn();
  const bool blocking = config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT
                            ? parent->blocking
                            : config->blocking != 0;
  const auto comm = std::make_shared<Comm>(0, 1, parent->device, blocking);
  if (color != NCCL_SPLIT_NOCOLOR) *made = enter(comm);
  comm->start([=](Comm& self, Member own, std::vector<Member>& table, std::string& why) {
    parent->await_turn(turn);
    own.color = color;
    own.key = key;
    own.rank = parent->rank();
    std::vector<Member> all;
    const ncclResult_t result = parent->share(own, all, why);
    parent->end_turn();
    if (result != ncclSuccess) return result;
    if (color == NCCL_SPLIT_NOCOLOR) {
      table = {own};
      return ncclSuccess;
    }
    for (const Member& member : all) {
      if (member.color == color) table.push_back(member);
    }
    std::stable_sort(table.begin(), table.end(),
                     [](const Member& a, const Member& b) { return a.key < b.key; });
    for (size_t r = 0; r < table.size(); ++r) {
      if (table[r].rank == own.rank) self.place(static_cast<int>(r), static_cast<int>(table.size()));
    }
    return ncclSuccess;
  });
  if (color == NCCL_SPLIT_NOCOLOR) {
    if (parent->blocking) comm->wait_started();
    return ncclSuccess;
  }
  return started(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  *error = comm->state();
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  comm->finalized = true;
  if (!comm->blocking) return comm->state() == ncclSuccess ? ncclSuccess : ncclInProgress;
  comm->finish();
  return comm->state();
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  {
    const std::scoped_lock lock(driver().mutex);
    if (!comm->registered.empty()) mistake("ncclCommDestroy with memory that is still registered");
  }
  comm->wait_started();
  comm->finish();
  leave(handle);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  if (handle == nullptr) return ncclSuccess;
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  comm->abort();
  leave(handle);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  *count = comm->size();
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  *rank = comm->rank();
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* device) {
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  *device = comm->device;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  const cudaError_t error =
      locked([&](Driver& sim) { return allocate_device(data, bytes, "ncclMemAlloc", {}, use_device(sim)); });
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* data) {
  if (registered_anywhere(data)) mistake("ncclMemFree of memory that is registered with a communicator");
  return free_device(data, "ncclMemFree") == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* data, size_t bytes, void** registration) {
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  const std::scoped_lock lock(driver().mutex);
  const Allocation* found = driver().memory.find(data);
  if (found == nullptr || found->device != comm->device ||
      reinterpret_cast<uintptr_t>(data) + bytes > found->base + found->bytes) {
    mistake("ncclCommRegister of a span that is not allocated on the communicator's device");
    return ncclInvalidArgument;
  }
  comm->registered.insert(data);
  *registration = data;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  const std::scoped_lock lock(driver().mutex);
  if (comm->registered.erase(registration) == 0) {
    mistake("ncclCommDeregister of memory that is not registered");
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t handle) {
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  Call made{.type = type};
  if (residence == ncclScalarDevice) {
    if (type != ncclFloat32 && type != ncclFloat64)
      return fail(ncclInvalidArgument, "scalars are floats here");
    made.device_scale = scalar;
  } else if (type == ncclFloat64) {
    made.scale = *static_cast<const double*>(scalar);
  } else if (type == ncclFloat32) {
    made.scale = *static_cast<const float*>(scalar);
  } else {
    const Call one{.type = type};
    std::byte wide[sizeof(double)] = {};
    std::memcpy(wide, scalar, size_of(type));
    made.scale = as_double(wide, one.type);
  }
  comm->scaled_ops.push_back(made);
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->scaled_ops.size()) - 1);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  const std::shared_ptr<Comm> comm = find(handle);
  const auto index = static_cast<size_t>(op - ncclNumOps);
  if (comm == nullptr || index >= comm->scaled_ops.size()) return ncclInvalidArgument;
  comm->scaled_ops[index].type = ncclNumTypes;  // never handed out again
  return ncclSuccess;
}

}  // extern "C"
