// The program when all is well.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/program/fixture.h"

namespace rondo::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::vector<json> json_lines(const std::string& text) {
  std::vector<json> rows;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) rows.push_back(json::parse(line));
  return rows;
}

using Program = ProgramTest;

TEST_F(Program, AnswersWithoutTraining) {
  Outcome outcome = run_command(train_line("--help"), folder_);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("mpirun -np 4 ./train"), HasSubstr("--batch-size")));
  outcome = run_command(train_line("--version"), folder_);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "Rondo 0.1.0\n");
  outcome = run_command(train_line("--check-build"), folder_);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("MPI     Open MPI v"), HasSubstr("oneDNN  "), HasSubstr("CUDA    ")));
  outcome = run_command(train_line("--summary --model lenet5"), folder_);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("lenet5"), HasSubstr("61,706")));
}

TEST_F(Program, OneRankAnswersForAll) {
  const Outcome outcome = run_command(train_line("--version", 3), folder_);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "Rondo 0.1.0\n");
}

TEST_F(Program, TrainsAloneAndOverRanks) {
  for (const int ranks : {0, 1, 2, 3}) {
    SCOPED_TRACE(fmt::format("{} ranks", ranks));
    const Outcome outcome = run_command(train_line(quick(), ranks), folder_);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("epoch 1/1"), HasSubstr("accuracy"), HasSubstr("val_accuracy")));
    EXPECT_THAT(outcome.out,
                HasSubstr(ranks < 2 ? "1 rank on 1 host" : fmt::format("{} ranks on 1 host", ranks)));
  }
}

TEST_F(Program, MeasuresCollectivesForLaterRuns) {
  Outcome outcome = run_command(train_line("--tune-collectives costs.json", 2), folder_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("train with --collectives costs.json"));
  const json file = json::parse(read_text(folder_ / "costs.json"));
  EXPECT_THAT(file.at("where").get<std::string>(), HasSubstr("2 ranks on 1 hosts"));
  for (const auto& [name, value] : file.at("costs").items()) EXPECT_GT(value.get<double>(), 0.0) << name;
  outcome = run_command(train_line(quick() + " --collectives costs.json", 2), folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("(tuned by costs.json)"));
  // Rank 0's environment counts.
  outcome = run_command("RONDO_COLLECTIVES=costs.json " + train_line(quick(), 2), folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("(tuned by costs.json)"));
  outcome = run_command("RONDO_COLLECTIVES=/does/not/exist " + train_line(quick(), 2), folder_);
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("train: error: /does/not/exist: cannot be read"));
}

TEST_F(Program, JsonLinesAndCsv) {
  const Outcome outcome = run_command(
      train_line("--model mlp --batch-size 40 --epochs 2 --log-jsonl log.jsonl --log-csv log.csv --data " +
                     data_.string(),
                 2),
      folder_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<json> rows = json_lines(read_text(folder_ / "log.jsonl"));
  ASSERT_EQ(rows.size(), 2U * (3 + 1) + 1);  // 96 samples in batches of 40: three steps an epoch
  for (const int epoch : {0, 1}) {
    for (int step = 0; step < 3; ++step) {
      const json& row = rows.at(static_cast<size_t>(epoch * 4 + step));
      EXPECT_EQ(row.at("event"), "step");
      EXPECT_EQ(row.at("epoch"), epoch);
      EXPECT_EQ(row.at("step"), step);
      EXPECT_EQ(row.at("samples"), step < 2 ? 40 : 16);
      EXPECT_GT(row.at("loss"), 0.0);
      EXPECT_GT(row.at("samples_per_s"), 0.0);
    }
    const json& row = rows.at(static_cast<size_t>(epoch * 4 + 3));
    EXPECT_EQ(row.at("event"), "epoch");
    EXPECT_EQ(row.at("epoch"), epoch);
    EXPECT_EQ(row.at("samples"), 96);
    for (const char* name : {"loss", "accuracy", "val_loss", "val_accuracy", "seconds", "samples_per_s"}) {
      EXPECT_TRUE(row.at(name).is_number()) << name;
    }
  }
  const json& end = rows.back();
  EXPECT_EQ(end.at("event"), "end");
  EXPECT_EQ(end.at("epochs"), 2);
  EXPECT_EQ(end.at("steps"), 6);
  EXPECT_EQ(end.at("samples"), 192);
  EXPECT_GT(end.at("peak_memory_bytes"), 0);
  ASSERT_EQ(end.at("ranks").size(), 2U);
  for (const json& rank : end.at("ranks")) {
    for (const char* name : {"compute_seconds", "communication_seconds", "input_seconds"}) {
      EXPECT_GE(rank.at(name), 0.0) << name;
    }
  }
  EXPECT_THAT(read_text(folder_ / "log.csv"), HasSubstr("epoch,accuracy,loss,val_accuracy,val_loss"));
}

TEST_F(Program, ValidationSplitTakesTheLastSamples) {
  const Outcome outcome =
      run_command(train_line(quick() + " --validation-split 0.25 --log-jsonl log.jsonl"), folder_);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<json> rows = json_lines(read_text(folder_ / "log.jsonl"));
  EXPECT_EQ(rows.back().at("samples"), 72);
  EXPECT_TRUE(rows.at(rows.size() - 2).contains("val_loss"));
}

// The package's folder is hidden behind an empty one, in a mount namespace of the test's own.
TEST_F(Program, SyntheticDataWhereThePackageIsAbsent) {
  const std::string hidden =
      "exec unshare --map-root-user --mount bash -c 'mkdir -p /usr/share/datasets && "
      "mount -t tmpfs none /usr/share/datasets && exec ";
  if (run_command(hidden + "true'", folder_).code != 0)
    GTEST_SKIP() << "mount namespaces are not allowed here";
  const Outcome outcome =
      run_command(hidden + train_line("--model mlp --epochs 1 --steps-per-epoch 2").substr(5) + "'", folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("not installed"), HasSubstr("synthetic"), HasSubstr("epoch 1/1")));
}

TEST_F(Program, DataFolderOfTheUser) {
  const std::string variable = "RONDO_DATA_DIR=" + data_.string() + " ";
  const std::string line = train_line("--model mlp --epochs 1 --batch-size 96").substr(5);
  EXPECT_EQ(run_command(variable + line, folder_).code, 0);
  std::filesystem::remove(data_ / "train-images-idx3-ubyte");
  expect_one_error(run_command(variable + line, folder_), 1, "train", data_.string());
}

TEST_F(Program, ProgressNoneIsSilent) {
  const Outcome outcome = run_command(train_line(quick() + " --progress none"), folder_);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Program, SlurmVariables) {
  // A batch script's variables, without srun; one task of srun; mpirun within an allocation.
  for (const char* variables :
       {"SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0",
        "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0"}) {
    const Outcome outcome =
        run_command(fmt::format("{} {}", variables, train_line(quick()).substr(5)), folder_);
    EXPECT_EQ(outcome.code, 0) << variables << "\n" << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("1 rank on 1 host"));
  }
  const Outcome outcome =
      run_command(fmt::format("{} -np 2 env SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=0 {} {}", mpirun(),
                              train_path(), quick()),
                  folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 ranks on 1 host"));
}

TEST_F(Program, MoreRanksThanSamplesInABatch) {
  const Outcome outcome =
      run_command(train_line("--model mlp --epochs 1 --batch-size 2 --data " + data_.string(), 3), folder_);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

}  // namespace
}  // namespace rondo::test
