#include "tests/sim/nccl_group.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/sim/api.h"

namespace rondo::sim {
namespace {

// What a thread has begun with ncclGroupStart.
struct Group {
  int depth = 0;
  struct Item {
    std::shared_ptr<Comm> comm;
    cudaStream_t stream;
    std::vector<Call> calls;
  };
  std::vector<Item> items;
  std::vector<std::shared_ptr<Comm>> starting;
  ncclResult_t error = ncclSuccess;
};

Group& this_group() {
  thread_local Group group;
  return group;
}

struct Registry {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<Comm>> comms;
  std::string last_error;
};

Registry& registry() {
  static Registry* const kRegistry = new Registry;
  return *kRegistry;
}

}  // namespace

ncclResult_t fail(ncclResult_t result, const std::string& why) {
  const std::scoped_lock lock(registry().mutex);
  registry().last_error = why;
  return result;
}

std::string last_failure() {
  const std::scoped_lock lock(registry().mutex);
  return registry().last_error;
}

bool registered_anywhere(void* data) {
  const std::scoped_lock lock(registry().mutex, driver().mutex);
  for (const auto& [handle, comm] : registry().comms) {
    if (comm->registered.count(data) != 0) return true;
  }
  return false;
}

std::shared_ptr<Comm> find(ncclComm_t handle, bool must) {
  const std::scoped_lock lock(registry().mutex);
  const auto found = registry().comms.find(handle);
  if (found == registry().comms.end()) {
    if (must) mistake("a call names an NCCL communicator that does not exist, or was destroyed");
    return nullptr;
  }
  return found->second;
}

ncclComm_t enter(const std::shared_ptr<Comm>& comm) {
  const auto handle = reinterpret_cast<ncclComm_t>(comm.get());
  const std::scoped_lock lock(registry().mutex);
  registry().comms[handle] = comm;
  return handle;
}

void leave(ncclComm_t handle) {
  const std::scoped_lock lock(registry().mutex);
  registry().comms.erase(handle);
}

ncclResult_t started(const std::shared_ptr<Comm>& comm) {
  if (!comm->blocking) return ncclInProgress;
  if (this_group().depth > 0) {
    this_group().starting.push_back(comm);
    return ncclSuccess;
  }
  comm->wait_started();
  const ncclResult_t result = comm->state();
  return result == ncclSuccess ? result : fail(result, comm->last_error());
}

namespace {

ncclResult_t end_group() {
  Group group = std::exchange(this_group(), {});
  ncclResult_t result = group.error;
  for (const auto& comm : group.starting) {
    comm->wait_started();
    if (result == ncclSuccess) result = comm->state();
  }
  if (result != ncclSuccess) return result;
  for (Group::Item& item : group.items) {
    const ncclResult_t launched = item.comm->launch(std::move(item.calls), item.stream);
    if (launched != ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) result = launched;
  }
  return result;
}

ncclResult_t check(const Comm& comm, const Call& call) {
  if (size_of(call.type) == 0)
    return fail(ncclInvalidArgument, "the simulation does not know this data type");
  if (call.root < 0 || call.root >= comm.size())
    return fail(ncclInvalidArgument, "root or peer out of range");
  return ncclSuccess;
}

}  // namespace

ncclResult_t call(ncclComm_t handle, cudaStream_t stream, Call what) {
  const std::shared_ptr<Comm> comm = find(handle);
  if (comm == nullptr) return ncclInvalidArgument;
  if (const ncclResult_t state = comm->state(); state != ncclSuccess && state != ncclInProgress) return state;
  if (what.op >= ncclNumOps) {
    const auto index = static_cast<size_t>(what.op - ncclNumOps);
    if (index >= comm->scaled_ops.size() || comm->scaled_ops[index].type != what.type) {
      return fail(ncclInvalidArgument, "this reduction was made for another type, or destroyed");
    }
    what.scale = comm->scaled_ops[index].scale;
    what.device_scale = comm->scaled_ops[index].device_scale;
    what.op = ncclSum;
  }
  Group& group = this_group();
  if (const ncclResult_t result = check(*comm, what); result != ncclSuccess) {
    if (group.depth > 0) group.error = result;
    return result;
  }
  if (group.depth == 0) {
    if (what.kind == Kind::kSend || what.kind == Kind::kReceive) return comm->launch({what}, stream);
    return what.count == 0 ? ncclSuccess : comm->launch({what}, stream);
  }
  for (Group::Item& item : group.items) {
    if (item.comm != comm) continue;
    if (item.stream != stream) return group.error = fail(ncclInvalidUsage, "one group uses several streams");
    item.calls.push_back(what);
    return ncclSuccess;
  }
  group.items.push_back({comm, stream, {what}});
  return ncclSuccess;
}

size_t live_comms() {
  const std::scoped_lock lock(registry().mutex);
  return registry().comms.size();
}
}  // namespace rondo::sim

using namespace rondo::sim;

extern "C" {

ncclResult_t ncclGroupStart() {
  ++this_group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (this_group().depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --this_group().depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream,
              {.kind = Kind::kAllReduce, .in = in, .out = out, .count = count, .type = type, .op = op});
}
ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return call(
      comm, stream,
      {.kind = Kind::kReduce, .in = in, .out = out, .count = count, .type = type, .op = op, .root = root});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream,
              {.kind = Kind::kReduceScatter, .in = in, .out = out, .count = count, .type = type, .op = op});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream,
              {.kind = Kind::kBroadcast, .in = in, .out = out, .count = count, .type = type, .root = root});
}
ncclResult_t ncclBcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, stream, {.kind = Kind::kAllGather, .in = in, .out = out, .count = count, .type = type});
}
ncclResult_t ncclAlltoAll(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return call(comm, stream, {.kind = Kind::kAllToAll, .in = in, .out = out, .count = count, .type = type});
}
ncclResult_t ncclGather(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream,
              {.kind = Kind::kGather, .in = in, .out = out, .count = count, .type = type, .root = root});
}
ncclResult_t ncclScatter(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream,
              {.kind = Kind::kScatter, .in = in, .out = out, .count = count, .type = type, .root = root});
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, stream, {.kind = Kind::kSend, .in = in, .count = count, .type = type, .root = peer});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, stream, {.kind = Kind::kReceive, .out = out, .count = count, .type = type, .root = peer});
}

}  // extern "C"
