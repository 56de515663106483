#include <fmt/core.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"

namespace rondo {
namespace {

struct Outcome {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> finished;
  std::exception_ptr first_error;

  bool all_finished() const {
    for (const bool one : finished) {
      if (!one) return false;
    }
    return true;
  }
};

void run_one(int rank, Communicator& comm, const std::function<void(Communicator&)>& rank_main,
             Outcome& outcome) {
  const auto keep = [&](std::string_view reason) {
    const std::lock_guard lock(outcome.mutex);
    if (outcome.first_error == nullptr) outcome.first_error = std::current_exception();
    comm.publish_failure(reason);
  };
  try {
    rank_main(comm);
  } catch (const std::exception& error) {
    keep(error.what());
  } catch (...) {
    keep("an exception that is not a std::exception");
  }
  const std::lock_guard lock(outcome.mutex);
  outcome.finished[static_cast<size_t>(rank)] = true;
  outcome.changed.notify_all();
}

}  // namespace

void run_ranks(int size, const std::function<void(Communicator&)>& rank_main, const LocalOptions& options,
               std::chrono::milliseconds limit) {
  const auto comms = make_local_communicators(size, options);
  Outcome outcome;
  outcome.finished.assign(static_cast<size_t>(size), false);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] { run_one(r, *comms[static_cast<size_t>(r)], rank_main, outcome); });
  }
  {
    std::unique_lock lock(outcome.mutex);
    const auto over = [&] { return outcome.all_finished(); };
    if (!outcome.changed.wait_for(lock, limit, over)) {
      lock.unlock();
      comms[0]->publish_failure(fmt::format("the ranks did not finish within {} ms", limit.count()));
      lock.lock();
      if (!outcome.changed.wait_for(lock, std::chrono::seconds(5), over)) {
        for (size_t r = 0; r < outcome.finished.size(); ++r) {
          if (!outcome.finished[r]) std::fprintf(stderr, "rank %zu hangs outside its collectives\n", r);
        }
        std::abort();  // a thread cannot be ended from outside
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (outcome.first_error != nullptr) std::rethrow_exception(outcome.first_error);
}

}  // namespace rondo
