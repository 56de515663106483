// The conformance suite on communicators of device memory: NCCL, and the one staged through the host. GPUs
// are simulated where RONDO_SIMULATED_GPUS is set; ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/comm/staged/staged_communicator.h"
#include "runtime/device/device.h"
#include "runtime/launch/gpu_loader.h"
#include "tests/comm/conformance.h"
#include "tests/nccl/device_view.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Parameter = std::tuple<ConformanceCase, int>;

const FoundGpus& gpus() {
  static const FoundGpus found = find_gpus();
  return found;
}

std::string parameter_name(const testing::TestParamInfo<Parameter>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
}

// Runs a case on `ranks` threads over what `make` makes of the host's communicator and a GPU for each.
template <class Make>
void run_on_devices(const Parameter& parameter, bool one_gpu, const Make& make) {
  const auto& [conformance, ranks] = parameter;
  ASSERT_NE(gpus().module, nullptr) << gpus().reason;
  if (!one_gpu && static_cast<int>(gpus().gpus.size()) < ranks) GTEST_SKIP() << "too few GPUs";
  run_ranks(ranks,
            [&, run = conformance.run](Communicator& host) {
              const auto device = gpus().module->make_device(one_gpu ? 0 : host.rank());
              const auto view = view_from_host(make(host, *device), *device);
              run(*view);
            },
            {.deadline = std::chrono::seconds(30)});
}

// With its debug mode, which compares the ranks' calls.
class NcclConformance : public testing::TestWithParam<Parameter> {};
TEST_P(NcclConformance, Case) {
  run_on_devices(GetParam(), false, [](Communicator& host, Device& device) {
    return gpus().module->make_communicator(host, device,
                                            {.deadline = std::chrono::seconds(30), .check_calls = true});
  });
}

// Not the one in which the late rank is named, since NCCL does not know for whom it waits: see NcclDeadline.
std::vector<ConformanceCase> nccl_error_cases() {
  std::vector<ConformanceCase> cases(error_cases().begin(), error_cases().end());
  std::erase_if(cases, [](const ConformanceCase& one) {
    return one.name == std::string_view("MissedDeadlineIsToldAndStays");
  });
  return cases;
}

// Without it: nothing meets on the host, so sets may be used in different orders.
class NcclFreely : public testing::TestWithParam<Parameter> {};
TEST_P(NcclFreely, Case) {
  run_on_devices(GetParam(), false, [](Communicator& host, Device& device) {
    return gpus().module->make_communicator(host, device, {.deadline = std::chrono::seconds(30)});
  });
}

TEST(NcclDeadline, AMissingRankIsToldInTimeAndStays) {
  ASSERT_NE(gpus().module, nullptr) << gpus().reason;
  run_ranks(2, [](Communicator& host) {
    const auto device = gpus().module->make_device(host.rank());
    const auto comm = gpus().module->make_communicator(host, *device, {});
    const Buffer buffer = comm->allocate(4000);
    const Span span{buffer.data(), 1000, DType::kF32};
    comm->all_reduce(span, span, ReduceOp::kSum).wait();
    if (host.rank() == 0) {
      const auto begin = std::chrono::steady_clock::now();
      std::string text;
      try {
        comm->all_reduce(span, span, ReduceOp::kSum,
                         {.label = "grads/7", .deadline = std::chrono::milliseconds(150)})
            .wait();
      } catch (const PeerError& error) {
        text = error.what();
      }
      EXPECT_THAT(text, AllOf(HasSubstr("rank 0"), HasSubstr("all_reduce #1 \"grads/7\""),
                              HasSubstr("1000 float32"), HasSubstr("150 ms")));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
      try {
        comm->barrier().wait();
        ADD_FAILURE() << "a failed communicator works";
      } catch (const PeerError& error) {
        EXPECT_EQ(error.what(), text);
      }
    }
    host.barrier().wait();
  });
}

TEST(NcclStreams, ACollectiveStartsBehindItsEventAndAStreamBehindIt) {
  ASSERT_NE(gpus().module, nullptr) << gpus().reason;
  run_ranks(2, [](Communicator& host) {
    const auto device = gpus().module->make_device(host.rank());
    const auto comm = gpus().module->make_communicator(host, *device, {});
    const auto stream = device->make_stream();
    const auto event = device->make_event();
    constexpr int64_t kCount = 100000;
    const Buffer buffer = comm->allocate(4 * kCount), staging = device->allocate_host(4 * kCount);
    const Span span{buffer.data(), kCount, DType::kF32};
    float* const values = staging.as<float>();
    for (int round = 0; round < 5; ++round) {
      std::fill_n(values, kCount, static_cast<float>(host.rank() + round));
      stream->copy(buffer.data(), values, 4 * kCount);
      stream->record(*event);
      comm->all_reduce(span, span, ReduceOp::kSum, {.after = event.get()}).order_before(*stream);
      stream->copy(values, buffer.data(), 4 * kCount);
      stream->synchronize();
      EXPECT_EQ(values[0], static_cast<float>(2 * round + 1));
      EXPECT_EQ(values[kCount - 1], static_cast<float>(2 * round + 1));
    }
  });
}

class StagedConformance : public testing::TestWithParam<Parameter> {};
TEST_P(StagedConformance, Case) {
  run_on_devices(GetParam(), true,
                 [](Communicator& host, Device& device) { return make_staged_communicator(host, device); });
}

constexpr int kRanks[] = {1, 2, 8};
#define RONDO_CONFORMANCE(Suite, Name, cases) \
  INSTANTIATE_TEST_SUITE_P(                   \
      Name, Suite, testing::Combine(testing::ValuesIn(cases()), testing::ValuesIn(kRanks)), parameter_name)
RONDO_CONFORMANCE(NcclConformance, Reductions, reduction_cases);
RONDO_CONFORMANCE(NcclConformance, Moves, move_cases);
RONDO_CONFORMANCE(NcclConformance, Order, order_cases);
RONDO_CONFORMANCE(NcclConformance, Arguments, argument_cases);
RONDO_CONFORMANCE(NcclFreely, Random, random_cases);
RONDO_CONFORMANCE(NcclConformance, Errors, nccl_error_cases);
RONDO_CONFORMANCE(StagedConformance, Reductions, reduction_cases);
RONDO_CONFORMANCE(StagedConformance, Moves, move_cases);
RONDO_CONFORMANCE(StagedConformance, Order, order_cases);
RONDO_CONFORMANCE(StagedConformance, Arguments, argument_cases);
RONDO_CONFORMANCE(StagedConformance, Random, random_cases);
RONDO_CONFORMANCE(StagedConformance, Errors, error_cases);

}  // namespace
}  // namespace rondo
