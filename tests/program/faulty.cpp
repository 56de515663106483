// A user's program that goes wrong as it is told: what the supervision of a job is tested with.
//   faulty <what> [rank]     `rank` (default 1) is the one that goes wrong
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/launch/run.h"
#include "runtime/launch/world.h"

namespace {

using rondo::World;

void all_reduce(World& world) {
  std::vector<float> values(1000, 1.0F);
  const rondo::Span span = rondo::span_of(std::span(values));
  world.comm().all_reduce(span, span, rondo::ReduceOp::kSum).wait();
  if (values.front() != static_cast<float>(world.size())) std::abort();
}

// Some steps, then the chosen rank goes wrong while the others go on.
int go_wrong(World& world, const std::string& what, int chosen) {
  const bool mine = world.rank() == chosen;
  if (what == "option-everywhere") throw rondo::InvalidArgument("the option is wrong");
  if (what == "option-here" && mine) throw rondo::InvalidArgument("the option is wrong");
  if (what == "file-checked") {
    world.all_or_none("reading data", [&] {
      if (mine) throw rondo::FileError("data.idx: truncated");
    });
  }
  if (what == "mismatch") {
    const std::vector<rondo::Fact> facts{{"--batch-size", mine ? "32" : "64"}};
    world.agree_on(facts);
  }
  if (what == "hang") {
    fmt::print("hanging\n");
    std::fflush(stdout);
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  for (int step = 0; step < 1000; ++step) {
    if (step == 5 && mine) {
      if (what == "throw") throw std::runtime_error("the disk is full");
      if (what == "throw-int") throw 42;
      if (what == "thread") std::thread([] { throw std::runtime_error("the loader broke"); }).join();
      if (what == "kill") raise(SIGKILL);
      if (what == "segfault") raise(SIGSEGV);
      if (what == "exit") _exit(7);
    }
    if (step == 5 && what == "throw-everywhere") throw std::runtime_error("the disk is full");
    all_reduce(world);
    if (world.stop_signal() != 0) break;
  }
  if (world.rank() == 0) fmt::print("done with {} ranks\n", world.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string what = argc > 1 ? argv[1] : "nothing";
  const int chosen = argc > 2 ? std::atoi(argv[2]) : 1;
  if (what.rfind("bare-", 0) == 0) {  // without the wrapper: the exception leaves main
    World world(argc, argv);
    return go_wrong(world, what.substr(5), chosen);
  }
  return rondo::run(argc, argv, [&](World& world) { return go_wrong(world, what, chosen); });
}
