#include "tests/sim/comm.h"

#include <fmt/core.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "tests/sim/api.h"
#include "tests/sim/call_runner.h"
#include "tests/sim/devices.h"
#include "tests/sim/mistakes.h"

namespace rondo::sim {
namespace {

constexpr uint64_t kMagic = 0x6e63636c2d73696dull;
constexpr std::chrono::minutes kMeetDeadline(10);  // callers give up earlier, and abort

struct Hello {
  uint64_t magic = kMagic;
  int32_t rank = 0;
  int32_t control = 0;
};

Wait until(const std::atomic<bool>& stop) {
  return {&stop, std::chrono::steady_clock::now() + kMeetDeadline};
}

}  // namespace

Comm::Comm(int rank, int size, int device_index, bool blocks)
    : device(device_index), blocking(blocks), rank_(rank), size_(size) {}

Comm::~Comm() {
  if (!starter_.joinable()) return;
  if (starter_.get_id() == std::this_thread::get_id()) {
    starter_.detach();
  } else {
    starter_.join();
  }
}

void Comm::start(Meet meet) {
  starter_ = std::thread([self = shared_from_this(), meet = std::move(meet)]() mutable {
    prctl(PR_SET_NAME, "sim nccl meet");
    std::string why;
    Member own{.rank = self->rank_, .size = self->size_, .device = physical_device(self->device)};
    std::strncpy(own.host, host_name().c_str(), sizeof own.host - 1);
    const uint32_t ip = own_address();
    const Socket listener = listen_on(ip, own.address);
    std::vector<Member> table;
    ncclResult_t result = ncclSystemError;
    if (ip == 0 || !listener) {
      why = "Bootstrap : no socket interface found";
    } else {
      result = meet(*self, own, table, why);
    }
    if (result == ncclSuccess) result = self->connect(table, listener, why);
    {
      const std::scoped_lock lock(self->mutex_);
      self->started_ = true;
      if (self->state_ == ncclInProgress) self->state_ = result;
      if (result != ncclSuccess && self->last_error_.empty()) self->last_error_ = why;
      self->changed_.notify_all();
    }
    self.reset();
  });
}

ncclResult_t Comm::connect(const std::vector<Member>& table, const Socket& listener, std::string& why) {
  for (size_t a = 0; a < table.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      if (table[a].device != table[b].device || std::strcmp(table[a].host, table[b].host) != 0) continue;
      why = fmt::format("Duplicate GPU detected : rank {} and rank {} both on CUDA device {:x}000", b, a,
                        table[a].device + 1);
      return ncclInvalidUsage;
    }
  }
  size_ = static_cast<int>(table.size());
  data_.resize(table.size());
  control_.resize(table.size());
  const Wait wait = until(aborted);
  for (int r = 0; r < rank_; ++r) {
    for (const int control : r == 0 ? std::vector{0, 1} : std::vector{0}) {
      const Hello hello{.rank = rank_, .control = control};
      Socket& to = (control != 0 ? control_ : data_)[static_cast<size_t>(r)];
      if (connect_to(table[static_cast<size_t>(r)].address, wait, to) != Outcome::kDone ||
          send_all(to, &hello, sizeof hello, wait) != Outcome::kDone) {
        why = fmt::format("socketStartConnect: rank {} did not reach rank {}", rank_, r);
        return ncclSystemError;
      }
    }
  }
  for (int left = (size_ - 1 - rank_) * (rank_ == 0 ? 2 : 1); left > 0;) {
    Socket from;
    Hello hello;
    if (accept_from(listener, wait, from) != Outcome::kDone) {
      why = fmt::format("socketAccept: rank {} was not reached by all others", rank_);
      return ncclSystemError;
    }
    if (receive_all(from, &hello, sizeof hello, wait) != Outcome::kDone || hello.magic != kMagic) continue;
    if (hello.rank <= rank_ || hello.rank >= size_) continue;
    (hello.control != 0 ? control_ : data_)[static_cast<size_t>(hello.rank)] = std::move(from);
    --left;
  }
  return ncclSuccess;
}

void Comm::place(int rank, int size) {
  rank_ = rank;
  size_ = size;
}

void Comm::wait_started() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_; });
}

ncclResult_t Comm::state() {
  const std::scoped_lock lock(mutex_);
  if (state_ != ncclSuccess) return state_;
  if (!put_off_.empty()) {
    if (--asks_ > 0) return ncclInProgress;
    for (const auto& queue_now : std::exchange(put_off_, {})) {
      if (const ncclResult_t result = queue_now(); result != ncclSuccess) state_ = result;
    }
  }
  if (finalized && state_ == ncclSuccess) {
    const std::scoped_lock driver_lock(driver().mutex);
    if (executed_ < issued_) return ncclInProgress;
  }
  return state_;
}

ncclResult_t Comm::launch(std::vector<Call> calls, cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  if (state_ != ncclSuccess) return state_ == ncclInProgress ? ncclInvalidArgument : state_;
  for (const auto& queue_now : std::exchange(put_off_, {})) queue_now();
  // A call on a communicator that does not block may come back before anything is queued.
  if (!blocking && (driver().seed + issued_) % 2 == 0) {
    asks_ = 2;
    put_off_.push_back([this, calls = std::move(calls), stream] { return queue(calls, stream); });
    return ncclInProgress;
  }
  return queue(calls, stream);
}

ncclResult_t Comm::queue(const std::vector<Call>& calls, cudaStream_t handle) {
  const cudaError_t error = with_stream(handle, [&](Stream& stream) {
    if (stream.device() != device) return cudaErrorInvalidResourceHandle;
    const std::shared_ptr<void> held = stream.capture != nullptr ? hold_for_graph() : nullptr;
    return driver().submit(stream, [self = shared_from_this(), calls, held] {
      Operation operation{.name = CallRunner::name(calls.front().kind), .kernel = true};
      for (const Call& call : calls) {
        for (const Access& access : accesses_of(call, self->rank_, self->size_))
          operation.accesses.push_back(access);
      }
      operation.body = [self, calls, sequence = self->issued_++, number = ++self->operations_] {
        self->run(sequence, number, calls);
      };
      return operation;
    });
  });
  if (error == cudaSuccess) return ncclSuccess;
  return error == cudaErrorInvalidResourceHandle ? ncclInvalidUsage : ncclUnhandledCudaError;
}

void Comm::run(uint64_t sequence, int64_t number, const std::vector<Call>& calls) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return executed_ == sequence || aborted; });
    running_ = !aborted;
  }
  const Config& config = driver().config;
  if (!aborted) {
    if (config.nccl_hang.where == rank_ && config.nccl_hang.at == number) {
      hang();
    } else if (config.nccl_error.where == rank_ && config.nccl_error.at == number) {
      fail(ncclSystemError, "NET/Simulated: injected failure");
      hang();
    } else {
      std::string why;
      const Outcome outcome = CallRunner(*this, collectives_).run(calls, why);
      if (outcome == Outcome::kLost) {
        fail(ncclRemoteError, why);
        hang();
      }
    }
  }
  const std::scoped_lock lock(mutex_);
  ++executed_;
  // Ranks need not take part in others' exchanges between pairs.
  const auto for_all = [](const Call& call) {
    return call.kind != Kind::kSend && call.kind != Kind::kReceive;
  };
  if (std::any_of(calls.begin(), calls.end(), for_all)) ++collectives_;
  running_ = false;
  changed_.notify_all();
}

// What a kernel of NCCL does that cannot go on.
void Comm::hang() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return aborted.load(); });
}

void Comm::abort() {
  {
    const std::scoped_lock lock(mutex_);
    aborted = true;
    put_off_.clear();
    changed_.notify_all();
    if (started_) {
      for (const Socket& socket : data_) socket.shut_down();
      for (const Socket& socket : control_) socket.shut_down();
    }
  }
  if (starter_.joinable()) starter_.join();
  // Kernels that run end; those behind others, which may never do, find it aborted.
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !running_; });
  lock.unlock();
  await_graphs("ncclCommAbort");
}

std::shared_ptr<void> Comm::hold_for_graph() {
  ++graphs_;
  return {nullptr, [self = shared_from_this()](void*) { --self->graphs_; }};
}

void Comm::await_graphs(const char* call) const {
  for (int tries = 0; graphs_ > 0; ++tries) {
    if (tries == 100000) {
      mistake(std::string(call) + " waits in vain for the graphs that captured this communicator's calls");
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Comm::finish() {
  state();
  state();
  uint64_t issued = 0;
  {
    const std::scoped_lock lock(driver().mutex);
    issued = issued_;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return executed_ >= issued; });
  lock.unlock();
  await_graphs("ncclCommDestroy");
}

ncclResult_t Comm::fail(ncclResult_t result, const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (state_ == ncclSuccess || state_ == ncclInProgress) {
    state_ = result;
    last_error_ = why;
  }
  return result;
}

std::string Comm::last_error() {
  const std::scoped_lock lock(mutex_);
  return last_error_;
}

ncclResult_t Comm::share(const Member& own, std::vector<Member>& all, std::string& why) {
  const Wait wait = until(aborted);
  all.assign(static_cast<size_t>(size_), own);
  const size_t bytes = all.size() * sizeof(Member);
  bool fine = true;
  if (rank_ == 0) {
    for (size_t r = 1; r < all.size(); ++r) {
      fine = fine && receive_all(control_[r], &all[r], sizeof(Member), wait) == Outcome::kDone;
    }
    for (size_t r = 1; r < all.size(); ++r) {
      fine = fine && send_all(control_[r], all.data(), bytes, wait) == Outcome::kDone;
    }
  } else {
    fine = send_all(control_[0], &own, sizeof own, wait) == Outcome::kDone &&
           receive_all(control_[0], all.data(), bytes, wait) == Outcome::kDone;
  }
  if (!fine) why = "a rank of the parent communicator was lost";
  return fine ? ncclSuccess : ncclRemoteError;
}

uint64_t Comm::take_turn() {
  const std::scoped_lock lock(mutex_);
  return turns_++;
}

void Comm::await_turn(uint64_t turn) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turn_ == turn || aborted; });
}

void Comm::end_turn() {
  const std::scoped_lock lock(mutex_);
  ++turn_;
  changed_.notify_all();
}

}  // namespace rondo::sim
