// Run under mpirun by fault_test: all ranks reduce again and again, and rank 1 comes to harm on the way.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/device/cpu/cpu_device.h"

namespace rondo {
namespace {

void come_to_harm(const std::string& harm) {
  if (harm == "kill") std::raise(SIGKILL);
  if (harm == "stop") std::raise(SIGSTOP);
  if (harm == "throw") throw FileError("/data/part-7: read failed");
}

HostOptions options_of(const std::string& mode) {
  HostOptions options{.deadline = std::chrono::seconds(2),
                      .progress = mode == "thread" ? Progress::kThread : Progress::kInline};
  if (mode == "messages" || mode == "patient") options.shared_memory = false;
  if (mode == "patient") {
    options.deadline = std::chrono::minutes(5);
    options.heartbeat = std::chrono::milliseconds(200);
  }
  return options;
}

void run(const std::string& harm, const std::string& mode) {
  const auto session = MpiSession::start();
  const auto device = make_cpu_device(1);
  const auto comm = make_host_communicator(session, *device, options_of(mode));
  std::vector<float> values(300000, 0.0f);
  const Span span = span_of(std::span(values));
  try {
    for (int step = 0; step < 150; ++step) {
      Work work = comm->all_reduce(span, span, ReduceOp::kSum, {.label = "series"});
      if (step == 20 && comm->rank() == 1) come_to_harm(harm);
      work.wait();
      if (harm != "none" && step > 100) raise<InternalError>("nobody noticed the harm");
    }
  } catch (const Error& error) {
    comm->publish_failure(error.what());
    throw;
  }
}

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) {
  try {
    rondo::run(argc > 1 ? argv[1] : "none", argc > 2 ? argv[2] : "inline");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "victim: %s\n", error.what());
    return 1;
  }
  return 0;
}
