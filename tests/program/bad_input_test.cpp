// One clear message for each thing a user can get wrong.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/program/fixture.h"

namespace rondo::test {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

class BadInput : public ProgramTest {
 protected:
  std::filesystem::path file(const std::string& name) const { return data_ / name; }
  void keep_first(const std::string& name, size_t bytes) const {
    write_text(file(name), read_text(file(name)).substr(0, bytes));
  }
};

TEST_F(BadInput, MissingFolderAndFiles) {
  expect_refused("--data /does/not/exist", kFailure, "/does/not/exist");
  std::filesystem::remove(file("train-labels-idx1-ubyte"));
  expect_refused(quick(), kFailure, "train-labels-idx1-ubyte");
}

TEST_F(BadInput, TruncatedFile) {
  keep_first("train-images-idx3-ubyte", 5000);
  expect_refused(quick(), kFailure, "train-images-idx3-ubyte");
}

TEST_F(BadInput, NotGzip) {
  std::filesystem::remove(file("train-images-idx3-ubyte"));
  write_text(file("train-images-idx3-ubyte.gz"), "this is no gzip stream, nor IDX");
  expect_refused(quick(), kFailure, "train-images-idx3-ubyte.gz");
}

TEST_F(BadInput, WrongMagic) {
  std::string text = read_text(file("train-images-idx3-ubyte"));
  text[0] = 'P';
  write_text(file("train-images-idx3-ubyte"), text);
  expect_refused(quick(), kFailure, "train-images-idx3-ubyte");
}

TEST_F(BadInput, CountsDiffer) {
  write_idx_labels(file("train-labels-idx1-ubyte"), 95, 4);
  expect_refused(quick(), kFailure, "95");
}

TEST_F(BadInput, LabelOutOfRange) {
  write_idx_labels(file("t10k-labels-idx1-ubyte"), 32, 7);
  expect_refused(quick(), kFailure, "t10k-labels-idx1-ubyte");
}

TEST_F(BadInput, NoSamples) {
  write_idx_folder(data_, {.train = 0, .test = 32});
  expect_refused(quick(), kFailure, "train-images-idx3-ubyte");
}

TEST_F(BadInput, Options) {
  expect_refused("--batch-size 0", kUsage, "--batch-size is \"0\"");
  expect_refused("--batch-size -64", kUsage, "--batch-size is \"-64\"");
  expect_refused("--batch-size many", kUsage, "--batch-size is \"many\"");
  expect_refused("--model alexnet", kUsage, "unknown model \"alexnet\"");
  expect_refused("--optimizer lion", kUsage, "lion");
  expect_refused("--precision f8", kUsage, "unknown precision \"f8\"; choose one of f32, tf32, bf16, f16");
  expect_refused("--data synthetic:few", kUsage,
                 "synthetic:few: behind the colon stands a number of samples");
  expect_refused("--data synthetic:0", kUsage, "synthetic:0: behind the colon");
  expect_refused("--speed 9", kUsage, "--help");
}

// Before the data is looked at.
TEST_F(BadInput, PrecisionOfTheHost) {
  for (const std::string precision : {"bf16", "f16"}) {
    expect_refused("--data /does/not/exist --device cpu --precision " + precision, kFailure,
                   "precision " + precision + ": the host computes in f32");
  }
}

TEST_F(BadInput, CollectivesFile) {
  expect_refused(quick() + " --collectives /does/not/exist.json", kFailure,
                 "/does/not/exist.json: cannot be read");
  write_text(folder_ / "costs.json", "{\"costs\": {\"inside.latency_us\": 0}}");
  expect_refused(quick() + " --collectives " + (folder_ / "costs.json").string(), kFailure, "costs.json: \"");
  expect_refused("--collectives a --tune-collectives b", kUsage, "give one of them");
  expect_one_error(run_command(train_line("--tune-collectives /does/not/exist/f", 2), folder_), kFailure,
                   "train", "/does/not/exist/f: cannot be written");
  expect_one_error(run_command(train_line("--tune-collectives f"), folder_), kFailure, "train", "1 rank");
}

TEST_F(BadInput, Devices) {
  expect_refused("--device cuda", kFailure, "--device cuda: ");
  expect_refused("--gpus 2", kUsage, "--gpus asks for 2 GPUs");
  expect_refused("--gpus 0,1", kUsage, "--gpus asks for GPU 0");
  expect_refused("--gpus -1", kUsage, "--gpus is \"-1\"");
}

TEST_F(BadInput, OutputThatCannotBeWritten) {
  expect_refused(quick() + " --log-csv /does/not/exist/log.csv", kFailure, "/does/not/exist/log.csv");
  expect_refused(quick() + " --log-jsonl " + data_.string(), kFailure, data_.string());
}

TEST_F(BadInput, NothingIsOverwritten) {
  write_text(folder_ / "log.csv", "precious");
  write_text(folder_ / "log.jsonl", "precious");
  const std::string logs = " --log-csv log.csv --log-jsonl log.jsonl";
  for (const char* wrong : {"--data /does/not/exist", "--gpus 3", "--batch-size 0"}) {
    expect_refused(wrong + logs, std::string(wrong).find("--data") == 0 ? kFailure : kUsage, "");
    EXPECT_EQ(read_text(folder_ / "log.csv"), "precious");
    EXPECT_EQ(read_text(folder_ / "log.jsonl"), "precious");
  }
}

TEST_F(BadInput, LossTurnsNaN) {
  for (const int ranks : {0, 2}) {
    const Outcome outcome = run_command(
        train_line(quick() + " --epochs 20 --optimizer sgd --learning-rate 1e30 --progress none", ranks),
        folder_);
    expect_one_error(outcome, kFailure, "train", "loss");
  }
}

class Ranks : public BadInput {
 protected:
  // Two ranks that are started differently.
  Outcome two(const std::string& first, const std::string& second) const {
    return run_command(fmt::format("exec {} -np 1 {} : -np 1 {}", mpirun(), first, second), folder_);
  }
  std::string train(const std::string& arguments) const { return train_path() + " " + arguments; }
};

TEST_F(Ranks, DifferentOptions) {
  const Outcome outcome = two(train(quick()), train(quick() + " --learning-rate 0.5"));
  expect_one_error(outcome, kFailure, "train", "--learning-rate");
}

TEST_F(Ranks, OneWithAWrongOption) {
  const Outcome outcome = two(train(quick()), train(quick() + " --batch-size 0"));
  expect_one_error(outcome, kUsage, "train", "rank 1");
}

TEST_F(Ranks, DifferentData) {
  // The same path on two hosts may hold different files; a link that each rank reads differently stands for
  // that.
  const std::filesystem::path other = folder_ / "other";
  write_idx_folder(other, {.seed = 77});
  const std::string same = "--model mlp --batch-size 16 --epochs 1 --data ./data";
  std::filesystem::create_directories(folder_ / "elsewhere");
  std::filesystem::create_directory_symlink(other, folder_ / "elsewhere" / "data");
  const Outcome outcome = run_command(fmt::format("exec {} -np 1 {} {} : -np 1 --wdir elsewhere {} {}",
                                                  mpirun(), train_path(), same, train_path(), same),
                                      folder_);
  expect_one_error(outcome, kFailure, "train", "ranks disagree on");
}

TEST_F(Ranks, DifferentBuilds) {
  const Outcome outcome = two(train(quick()), other_train_path() + " " + quick());
  expect_one_error(outcome, kFailure, "train", "the program's build");
}

TEST_F(Ranks, SlurmWithoutAWayToConnect) {
  const Outcome outcome = run_command(
      "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=0 " + train_line(quick()).substr(5),
      folder_);
  EXPECT_NE(outcome.code, 0);
  EXPECT_LT(outcome.seconds, 10.0);
  EXPECT_EQ(outcome.out.find("epoch 1/"), std::string::npos);
}

}  // namespace
}  // namespace rondo::test
