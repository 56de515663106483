// Run across hosts by cut.sh: all ranks reduce again and again until something goes wrong or the time is
// over.
//
//   series SECONDS FOLDER
//
// Rank 0 says on standard output where the ranks are. FOLDER/running appears when the series is under way,
// and FOLDER/rank<r> when rank r is through: "done", or the error that ended it.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/device/cpu/cpu_device.h"

namespace rondo {
namespace {

constexpr std::chrono::seconds kDeadline(10);  // cut.sh expects errors soon after it

// Appears under its name only when it is complete.
void write_file(const std::filesystem::path& path, const std::string& text) {
  const std::filesystem::path draft = path.string() + ".draft";
  std::ofstream(draft) << text << '\n';
  std::filesystem::rename(draft, path);
}

void print_topology(const Communicator& comm) {
  const Topology& topology = comm.topology();
  fmt::print("{} ranks on {} hosts:", comm.size(), topology.hosts());
  for (const int host : topology.host_of) fmt::print(" {}", topology.host_names[static_cast<size_t>(host)]);
  fmt::print("\n");
  std::fflush(stdout);
}

void reduce_for(double seconds, Communicator& comm, const std::filesystem::path& folder) {
  std::vector<float> values(100000);
  std::vector<int32_t> go_on(1);
  const Span span = span_of(std::span(values));
  const Span vote = span_of(std::span(go_on));
  const Stopwatch watch;
  for (int step = 0;; ++step) {
    std::fill(values.begin(), values.end(), 1.0f);
    comm.all_reduce(span, span, ReduceOp::kSum, {.label = "series"}).wait();
    if (values.back() != static_cast<float>(comm.size())) raise<InternalError>("a sum is wrong");
    go_on[0] = watch.seconds() < seconds;
    comm.all_reduce(vote, vote, ReduceOp::kMin, {.label = "vote"}).wait();
    if (go_on[0] == 0) return;
    if (step == 5 && comm.rank() == 0) write_file(folder / "running", "");
  }
}

int run(double seconds, const std::filesystem::path& folder) {
  const auto session = MpiSession::start();
  const auto device = make_cpu_device(1);
  const auto comm = make_host_communicator(session, *device, {.deadline = kDeadline});
  const std::filesystem::path file = folder / fmt::format("rank{}", comm->rank());
  if (comm->rank() == 0) print_topology(*comm);
  try {
    reduce_for(seconds, *comm, folder);
    write_file(file, "done");
    return 0;
  } catch (const Error& error) {
    comm->publish_failure(error.what());
    write_file(file, fmt::format("error: {}", error.what()));
    session->abandon();
    // The launcher ends the other ranks of a host when one exits; each shall have its say before.
    std::this_thread::sleep_for(std::chrono::seconds(3));
    std::_Exit(1);
  }
}

}  // namespace
}  // namespace rondo

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: series SECONDS FOLDER\n");
    return 2;
  }
  try {
    return rondo::run(std::strtod(argv[1], nullptr), argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "series: error: {}\n", error.what());
    return 1;
  }
}
