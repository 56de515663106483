#include "tests/program/fixture.h"

#include <fmt/core.h>
#include <cstdlib>

#include <fstream>
#include <sstream>
#include <vector>

namespace rondo::test {
namespace {

void put_big_endian(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xff);
}

}  // namespace

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

std::string read_text(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

void write_idx_images(const std::filesystem::path& file, int64_t count, int classes, uint32_t seed) {
  std::string out;
  put_big_endian(out, 0x00000803);
  for (const uint32_t extent : {static_cast<uint32_t>(count), 28U, 28U}) put_big_endian(out, extent);
  uint32_t state = seed;
  for (int64_t i = 0; i < count; ++i) {
    const auto base = static_cast<uint32_t>(i % classes) * (200U / static_cast<uint32_t>(classes));
    for (int pixel = 0; pixel < 28 * 28; ++pixel) {
      state = state * 1664525U + 1013904223U;
      out += static_cast<char>(base + (state >> 24) % 32U);
    }
  }
  write_text(file, out);
}

void write_idx_labels(const std::filesystem::path& file, int64_t count, int classes) {
  std::string out;
  put_big_endian(out, 0x00000801);
  put_big_endian(out, static_cast<uint32_t>(count));
  for (int64_t i = 0; i < count; ++i) out += static_cast<char>(i % classes);
  write_text(file, out);
}

void write_idx_folder(const std::filesystem::path& folder, const IdxParts& parts) {
  std::filesystem::create_directories(folder);
  write_idx_images(folder / "train-images-idx3-ubyte", parts.train, parts.classes, parts.seed);
  write_idx_labels(folder / "train-labels-idx1-ubyte", parts.train, parts.classes);
  write_idx_images(folder / "t10k-images-idx3-ubyte", parts.test, parts.classes, parts.seed + 1);
  write_idx_labels(folder / "t10k-labels-idx1-ubyte", parts.test, parts.classes);
}

void ProgramTest::SetUp() {
  std::string name = (std::filesystem::temp_directory_path() / "rondo-program-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  folder_ = name;
  data_ = folder_ / "data";
  write_idx_folder(data_);
}

void ProgramTest::TearDown() {
  std::filesystem::remove_all(folder_);
}

std::string ProgramTest::mpirun() {
  return RONDO_MPIRUN " --oversubscribe";
}
std::string ProgramTest::train_path() {
  return RONDO_TRAIN;
}
std::string ProgramTest::other_train_path() {
  return RONDO_TRAIN_OTHER;
}

std::string ProgramTest::train_line(const std::string& arguments, int ranks) {
  if (ranks == 0) return fmt::format("exec {} {}", train_path(), arguments);
  return fmt::format("exec {} -np {} {} {}", mpirun(), ranks, train_path(), arguments);
}

std::string ProgramTest::faulty_line(const std::string& arguments, int ranks) {
  if (ranks == 0) return fmt::format("exec {} {}", RONDO_FAULTY, arguments);
  return fmt::format("exec {} -np {} {} {}", mpirun(), ranks, RONDO_FAULTY, arguments);
}

void ProgramTest::expect_one_error(const Outcome& outcome, int code, const std::string& program,
                                   const std::string& text) {
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.code, code);
  EXPECT_LT(outcome.seconds, 10.0);
  const std::vector<std::string> errors = outcome.lines_with(program + ": ");
  EXPECT_EQ(errors.size(), 1U) << outcome.err;
  if (errors.empty()) return;
  EXPECT_EQ(errors.front().rfind(program + ": error: ", 0), 0U) << errors.front();
  EXPECT_NE(errors.front().find(text), std::string::npos) << "expected: " << text << "\n" << errors.front();
}

void ProgramTest::expect_refused(const std::string& arguments, int code, const std::string& text) {
  for (const int ranks : {0, 2}) {
    SCOPED_TRACE(fmt::format("{} with {} ranks", arguments, ranks));
    const Outcome outcome = run_command(train_line(arguments, ranks), folder_);
    expect_one_error(outcome, code, "train", text);
    EXPECT_EQ(outcome.out.find("epoch 1/"), std::string::npos) << "training began:\n" << outcome.out;
  }
}

}  // namespace rondo::test
