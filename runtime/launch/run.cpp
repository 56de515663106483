#include "runtime/launch/run.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/mpi/launcher.h"
#include "runtime/launch/signal_watcher.h"
#include "runtime/launch/supervisor.h"
#include "runtime/launch/world.h"

namespace rondo {
namespace {

// Before there is a world, nobody can be asked. What ranks find out together only the first one prints.
int report_start_failure(const char* program, const std::exception& error) {
  const bool shared = dynamic_cast<const MismatchError*>(&error) != nullptr ||
                      dynamic_cast<const PeerError*>(&error) != nullptr;
  if (launched_by().rank == 0 || !shared) write_error(error_line(program_name(program), error.what()));
  return exit_code_of(error);
}

}  // namespace

int run(int argc, char** argv, const std::function<int(World&)>& body) {
  return run(argc, argv, {}, body);
}

int run(int argc, char** argv, const WorldOptions& options, const std::function<int(World&)>& body) {
  std::unique_ptr<World> world;
  int code = 0;
  bool failed = true;
  try {
    world = std::make_unique<World>(argc, argv, options);
    code = body(*world);
    world->comm().barrier({.label = "end of the program"}).wait();
    failed = false;
  } catch (const std::exception& error) {
    code = world ? world->report_failure(error) : report_start_failure(argv[0], error);
  } catch (...) {
    const Error error("an exception that is not a std::exception");
    code = world ? world->report_failure(error) : report_start_failure(argv[0], error);
  }
  if (failed) {
    // Ending MPI in an orderly way would wait for ranks that may be gone.
    std::fflush(nullptr);
    _exit(code);
  }
  const int signal = world->stop_signal();
  world.reset();
  return signal != 0 ? 128 + signal : code;
}

}  // namespace rondo
