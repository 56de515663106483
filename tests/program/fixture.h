// What the tests of the program share: a folder of their own, small data, and ways to start it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/program/command.h"

namespace rondo::test {

struct IdxParts {
  int64_t train = 96;
  int64_t test = 32;
  int classes = 4;
  uint32_t seed = 1;
};

// A folder of MNIST's files, uncompressed: 28 x 28 images whose brightness tells their class.
void write_idx_folder(const std::filesystem::path& folder, const IdxParts& parts = {});
void write_idx_images(const std::filesystem::path& file, int64_t count, int classes, uint32_t seed);
void write_idx_labels(const std::filesystem::path& file, int64_t count, int classes);
void write_text(const std::filesystem::path& file, const std::string& text);
std::string read_text(const std::filesystem::path& file);

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Command lines. 0 ranks: without a launcher.
  static std::string train_line(const std::string& arguments, int ranks = 0);
  static std::string faulty_line(const std::string& arguments, int ranks);
  static std::string mpirun();
  static std::string train_path();
  static std::string other_train_path();  // the same program from another build

  // Small and quick: the mlp on data_.
  std::string quick() const { return "--model mlp --batch-size 16 --epochs 1 --data " + data_.string(); }

  // Exit code `code` within ten seconds, exactly one message, which contains `text`.
  static void expect_one_error(const Outcome& outcome, int code, const std::string& program,
                               const std::string& text);
  // The same of `train`, alone and on two ranks.
  void expect_refused(const std::string& arguments, int code, const std::string& text);

  std::filesystem::path folder_;
  std::filesystem::path data_;
};

}  // namespace rondo::test
