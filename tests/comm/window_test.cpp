// Where the kernel gives no memory to pass between processes: MPI's windows, and where there are none either,
// messages. Runs under mpirun; OMPI_MCA_osc=^sm,ucx takes the windows away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/comm/conformance.h"
#include "tests/comm/mpi_main.h"
#include "tests/support/patience.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// From now on memfd_create fails as on a kernel without it. False where this kernel does not allow that.
bool forbid_memfd() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 && memfd_create("rondo", 0) == -1 &&
         errno == ENOSYS;
}

bool windows_are_there() {
  return std::getenv("OMPI_MCA_osc") == nullptr;
}

std::vector<std::string> hosts_of(int hosts) {
  std::vector<std::string> names;
  const int size = test_session()->size();
  for (int r = 0; hosts > 1 && r < size; ++r) names.push_back("node" + std::to_string(r * hosts / size));
  return names;
}

class NoMemfd : public testing::Test {
 protected:
  static void SetUpTestSuite() { forbidden_ = forbid_memfd(); }
  void SetUp() override {
    if (!forbidden_) GTEST_SKIP() << "this kernel does not let a process forbid itself a call";
    device_ = make_cpu_device(1);
  }
  std::unique_ptr<Communicator> make(int hosts = 1, Passing passing = Passing::kAuto) const {
    return make_host_communicator(
        test_session(), *device_,
        {.deadline = test::patience(std::chrono::seconds(40)), .passing = passing, .hosts = hosts_of(hosts)});
  }

  static bool forbidden_;
  std::unique_ptr<Device> device_;
};
bool NoMemfd::forbidden_ = false;

TEST_F(NoMemfd, SaysOnceHowTheRanksShareMemory) {
  for (const Passing passing : {Passing::kAuto, Passing::kSocket, Passing::kWindow}) {
    const auto comm = make(1, passing);
    if (!windows_are_there()) {
      EXPECT_THAT(comm->name(),
                  AllOf(StartsWith("host ring over MPI"), HasSubstr("MPI_Win_allocate_shared")));
    } else {
      EXPECT_THAT(comm->name(), AllOf(StartsWith("shared memory of one host"), HasSubstr("an MPI window")));
    }
    if (passing == Passing::kWindow) continue;
    EXPECT_THAT(comm->name(), HasSubstr("memfd_create: Function not implemented"));
  }
}

TEST_F(NoMemfd, CollectivesWork) {
  for (const auto& cases : {move_cases(), order_cases(), error_cases()}) {
    for (const ConformanceCase& one : cases) {
      SCOPED_TRACE(one.name);
      one.run(*make());
    }
  }
}

TEST_F(NoMemfd, AllocationsAreReducedWhereTheyLie) {
  const auto comm = make();
  for (int round = 0; round < 3; ++round) {
    const Buffer buffer = comm->allocate(int64_t{5} << 20);
    const Span span{buffer.data(), int64_t{5} << 18, DType::kF32};
    for (int64_t i = 0; i < span.count; ++i) {
      ASSERT_EQ(buffer.as<float>()[i], 0.0f);
      buffer.as<float>()[i] = static_cast<float>(i % 1000 * (comm->rank() + 1));
    }
    comm->all_reduce(span, span, ReduceOp::kSum).wait();
    const int ranks = comm->size() * (comm->size() + 1) / 2;
    for (int64_t i = 0; i < span.count; ++i)
      ASSERT_EQ(buffer.as<float>()[i], static_cast<float>(i % 1000 * ranks));
  }
}

TEST_F(NoMemfd, HostsShareMemoryWithinThemselves) {
  if (test_session()->size() < 4) GTEST_SKIP() << "takes four ranks";
  const auto comm = make(2);
  EXPECT_EQ(comm->name().find("shared memory in hosts") != std::string::npos, windows_are_there())
      << comm->name();
  for (const ConformanceCase& one : order_cases()) {
    SCOPED_TRACE(one.name);
    one.run(*comm);
  }
}

}  // namespace
}  // namespace rondo
