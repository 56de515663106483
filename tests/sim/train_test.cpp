// `train --device cuda` on simulated GPUs.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/program/fixture.h"

namespace rondo::test {
namespace {

using ::testing::HasSubstr;

class SimulatedTrain : public ProgramTest {
 protected:
  // Losses of 40 steps of the mlp.
  std::vector<double> losses(int ranks, const std::string& devices, int gpus) {
    const auto file = folder_ / fmt::format("losses{}{}", ranks, gpus);
    const std::string line = train_line(
        "--model mlp --data synthetic --optimizer sgd --batch-size 64 --steps-per-epoch 40 --epochs 1 "
        "--validation-split 0.001 --threads 1 --log-jsonl " +
            file.string() + " --device " + devices,
        ranks);
    const Outcome outcome = run_command(fmt::format("RONDO_SIMULATED_GPUS={} {}", gpus, line), folder_,
                                        std::chrono::seconds(120));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    if (gpus > 0) {
      EXPECT_THAT(outcome.out + outcome.err, HasSubstr("SIMULATED GPUS"));
    }
    std::vector<double> values;
    std::ifstream lines(file);
    for (std::string text; std::getline(lines, text);) {
      const auto event = nlohmann::json::parse(text);
      if (event.at("event") == "step") values.push_back(event.at("loss"));
    }
    EXPECT_EQ(values.size(), 40u);
    return values;
  }
};

TEST_F(SimulatedTrain, HasTheHostsLossesOnOneTwoAndEightDevices) {
  const auto host = losses(0, "cpu", 0);
  ASSERT_LT(host.back(), host.front() * 0.9) << "it does not learn";
  for (const int devices : {1, 2, 8}) {
    const auto gpus = losses(devices == 1 ? 0 : devices, "cuda", devices);
    ASSERT_EQ(gpus.size(), host.size());
    for (size_t i = 0; i < host.size(); ++i) {
      ASSERT_NEAR(gpus[i], host[i], 1e-5 * host[i]) << devices << " devices, step " << i;
    }
  }
}

TEST_F(SimulatedTrain, StartsARankForEachGpuThatIsAskedForWithoutALauncher) {
  const auto start = [&](const std::string& gpus) {
    return run_command(
        fmt::format("RONDO_SIMULATED_GPUS=3 {} --model mlp --data synthetic --steps-per-epoch 2 "
                    "--epochs 1 --validation-split 0.001 --gpus {}",
                    train_path(), gpus),
        folder_);
  };
  for (const char* two : {"2", "0,2"}) {
    const Outcome outcome = start(two);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("2 ranks on 1 host, NCCL")) << two;
  }
  EXPECT_THAT(start("1").out, HasSubstr("1 rank on 1 host"));
  const Outcome too_many = start("4");
  EXPECT_EQ(too_many.code, 2);
  EXPECT_THAT(too_many.err, HasSubstr("this host has 3"));
}

TEST_F(SimulatedTrain, SaysThatRanksNeedMpirun) {
  const Outcome outcome =
      run_command(fmt::format("RONDO_SIMULATED_GPUS=2 PATH=/nowhere {} --gpus 2", train_path()), folder_);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("mpirun could not be started (No such file or directory)"));
}

TEST_F(SimulatedTrain, InEveryPrecision) {
  for (const std::string precision : {"tf32", "bf16", "f16"}) {
    const std::string line =
        "RONDO_SIMULATED_GPUS=2 " +
        train_line(quick() + " --progress none --device cuda --precision " + precision, 2);
    const Outcome outcome = run_command(line, folder_, std::chrono::seconds(120));
    EXPECT_EQ(outcome.code, 0) << precision << ": " << outcome.err;
  }
}

// Each of the failures that a machine with GPUs can have: one message that says what it was, soon, on all
// ranks.
class SimulatedFailure : public ProgramTest {
 protected:
  void expect_failure(const std::string& environment, int ranks, const std::string& arguments, int code,
                      const std::string& text) {
    SCOPED_TRACE(environment + " on " + std::to_string(ranks) + " ranks");
    const std::string line = "RONDO_SIMULATED_GPUS=2 " + environment + " " +
                             train_line(quick() + " --progress none --device cuda " + arguments, ranks);
    const Outcome outcome = run_command(line, folder_, std::chrono::seconds(60));
    EXPECT_FALSE(outcome.timed_out);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    const auto errors = outcome.lines_with("train: error: ");
    ASSERT_EQ(errors.size(), 1u) << outcome.err;
    EXPECT_THAT(errors[0], HasSubstr(text));
    EXPECT_THAT(outcome.err, Not(HasSubstr("MISTAKE")));
  }
  void expect_failures(const std::string& environment, const std::string& text) {
    for (const int ranks : {0, 2}) expect_failure(environment, ranks, "", 1, text);
  }
};

TEST_F(SimulatedFailure, NoUsableDriver) {
  expect_failures("RONDO_SIM_NO_DRIVER=1", "driver");
  expect_failures("RONDO_SIM_DRIVER_VERSION=12040", "install a newer driver");
  expect_failures("CUDA_VISIBLE_DEVICES=", "no CUDA-capable device");
}

TEST_F(SimulatedFailure, WithoutADriverAutoTakesTheHost) {
  const Outcome outcome = run_command(
      "RONDO_SIMULATED_GPUS=2 RONDO_SIM_NO_DRIVER=1 " + train_line(quick() + " --progress none"), folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(SimulatedFailure, OutOfMemory) {
  expect_failures("RONDO_SIM_MEMORY=1000000", "out of memory");
  expect_failures("RONDO_SIM_OOM_AT=9", "out of memory");
  expect_failure("RONDO_SIM_MEMORY=2800000", 0, "--batch-size 96", 1, "would fit");
}

TEST_F(SimulatedFailure, ABadChoiceOfDevices) {
  expect_failure("", 2, "--gpus 7", 2, "this host has 2");
  expect_failure("", 3, "", 2, "3 ranks on this host, but 2 GPUs");
  expect_failure("CUDA_VISIBLE_DEVICES=1", 2, "", 1, "share one GPU");
}

TEST_F(SimulatedFailure, ADeviceFails) {
  expect_failures("RONDO_SIM_KERNEL_ERROR=0:30", "illegal memory access");
  expect_failure("RONDO_SIM_KERNEL_ERROR=1:30", 2, "", 1, "rank 1");
}

TEST_F(SimulatedFailure, NcclFails) {
  expect_failure("RONDO_SIM_NCCL_ERROR=1:3", 2, "", 1, "injected failure");
  expect_failure("NCCL_SOCKET_IFNAME=nosuch", 2, "", 1, "no socket interface found");
}

TEST_F(SimulatedFailure, RanksDiffer) {
  const auto mixed = [&](const std::string& variable) {
    const std::string rank = train_path() + " " + quick() + " --progress none --device cuda";
    return run_command(
        fmt::format("RONDO_SIMULATED_GPUS=2 {} -np 1 {} : -np 1 -x {} {}", mpirun(), rank, variable, rank),
        folder_);
  };
  const Outcome version = mixed("RONDO_SIM_NCCL_VERSION=22500");
  EXPECT_EQ(version.code, 1);
  EXPECT_THAT(version.err, HasSubstr("ranks disagree on NCCL's version: \"2.28.9\" on rank 0"));
  const Outcome count = mixed("RONDO_SIMULATED_GPUS=1");
  EXPECT_EQ(count.code, 1);
  EXPECT_THAT(count.err, HasSubstr("sees 2 GPUs, but rank 1"));
}

}  // namespace
}  // namespace rondo::test
