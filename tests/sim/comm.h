// A communicator of the simulated NCCL: sockets to every other rank.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/sim/driver.h"
#include "tests/sim/net.h"

namespace rondo::sim {

enum class Kind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSend,
  kReceive
};

// One call, as it was made.
struct Call {
  Kind kind = Kind::kAllReduce;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;                        // or the peer
  double scale = 1.0;                  // of a pre-multiplied sum
  const void* device_scale = nullptr;  // the same, read when the call runs
};

// What ranks tell each other to meet.
struct Member {
  int32_t rank = 0, size = 0;
  int32_t color = 0, key = 0;
  int32_t device = 0;  // of its host
  char host[64] = {};
  Address address = {};
};

class Comm : public std::enable_shared_from_this<Comm> {
 public:
  Comm(int rank, int size, int device, bool blocking);
  ~Comm();

  const int device;
  const bool blocking;
  int rank() const { return rank_; }
  int size() const { return size_; }

  // Meets the other ranks on a thread of its own: `meet` fills `table` (in rank order), or says what went
  // wrong.
  using Meet =
      std::function<ncclResult_t(Comm&, const Member& own, std::vector<Member>& table, std::string& why)>;
  void start(Meet meet);
  void wait_started();
  ncclResult_t state();  // with calls that were put off

  // Queues calls as one operation; ncclInProgress where it was put off.
  ncclResult_t launch(std::vector<Call> calls, cudaStream_t stream);
  // Both wait until the last graph that holds operations of this communicator is gone, as NCCL does.
  void abort();
  void finish();                                                   // waits for what is queued
  ncclResult_t fail(ncclResult_t result, const std::string& why);  // the first one stays
  std::string last_error();

  void place(int rank, int size);  // while it starts
  // For split: every rank's record to all, through rank 0.
  ncclResult_t share(const Member& own, std::vector<Member>& all, std::string& why);
  uint64_t take_turn();  // of splits, in the order of the calls
  void await_turn(uint64_t turn);
  void end_turn();

  std::set<void*> registered;    // under the driver's lock
  std::vector<Call> scaled_ops;  // scale and type of ops made by ncclRedOpCreatePreMulSum
  std::atomic<bool> aborted{false};
  bool finalized = false;

 private:
  friend class CallRunner;
  ncclResult_t connect(const std::vector<Member>& table, const Socket& listener, std::string& why);
  ncclResult_t queue(const std::vector<Call>& calls, cudaStream_t stream);
  void run(uint64_t sequence, int64_t number, const std::vector<Call>& calls);
  void hang();  // until it is aborted
  std::shared_ptr<void> hold_for_graph();
  void await_graphs(const char* call) const;

  int rank_, size_;
  std::thread starter_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;
  ncclResult_t state_ = ncclInProgress;
  std::string last_error_;
  std::vector<Socket> data_, control_;  // by rank
  uint64_t issued_ = 0, executed_ = 0;  // operations; issued_ under the driver's lock
  int64_t operations_ = 0;
  uint64_t collectives_ = 0;    // executed operations in which all ranks take part
  bool running_ = false;        // a kernel
  std::atomic<int> graphs_{0};  // captured calls, in graphs that are still there
  uint64_t turns_ = 0, turn_ = 0;
  std::vector<std::function<ncclResult_t()>> put_off_;
  int asks_ = 0;
};

size_t size_of(ncclDataType_t type);  // 0: not supported
// all[r] holds rank r's block; result = op over them in rank order.
void reduce(const std::vector<const std::byte*>& all, std::byte* result, size_t count, const Call& call);
void scale(const std::byte* from, std::byte* to, size_t count, ncclDataType_t type, double factor);

double as_double(const std::byte* value, ncclDataType_t type);

// The spans a call reads and writes on this rank.
std::vector<Access> accesses_of(const Call& call, int rank, int size);

}  // namespace rondo::sim
