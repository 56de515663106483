#include "runtime/launch/collectives_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "runtime/base/error.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CollectivesFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("rondo_collectives_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
             testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string read() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  // The message of a file that holds `text`.
  std::string refusal(const std::string& text) const {
    write(text);
    try {
      read_collectives_file(path_);
    } catch (const FileError& error) {
      return error.what();
    }
    ADD_FAILURE() << "accepted: " << text;
    return {};
  }

  std::string path_;
};

TEST_F(CollectivesFile, GivesBackWhatWasWritten) {
  CostModel costs;
  costs.inside = {.latency_us = 0.1234, .bytes_per_us = 98765.4321, .crossing_share = 0.5};
  costs.shared.latency_us = 3;
  costs.between.crossing_share = 1;
  costs.letter_bytes = 32768;
  write_collectives_file(path_, costs, "2 ranks");
  const CostModel back = read_collectives_file(path_);
  const auto expected = costs.values();
  const auto found = back.values();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, expected[i].name);
    EXPECT_DOUBLE_EQ(found[i].value, expected[i].value) << found[i].name;
  }
  EXPECT_THAT(read(), HasSubstr("\"where\": \"2 ranks\""));
}

// What the file says decides.
TEST_F(CollectivesFile, DecidesWhichAlgorithmRuns) {
  const ReduceShape shape{.ranks = 8, .hosts = 8, .bytes = 64 << 20};
  ASSERT_EQ(choose_all_reduce(CostModel(), shape), ReduceAlgorithm::kRing);
  CostModel slow_to_begin;
  slow_to_begin.between = {.latency_us = 1000, .bytes_per_us = 1200, .crossing_share = 1};
  write_collectives_file(path_, slow_to_begin, "");
  EXPECT_EQ(choose_all_reduce(read_collectives_file(path_), shape), ReduceAlgorithm::kDirect);
}

TEST_F(CollectivesFile, NamesTheFileAndWhatIsWrongWithIt) {
  write_collectives_file(path_, {}, "");
  const std::string good = read();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const auto says = [&](const std::string& what) { return AllOf(HasSubstr(path_), HasSubstr(what)); };
  EXPECT_THAT(refusal(""), says("is not JSON"));
  EXPECT_THAT(refusal(good.substr(0, good.size() / 2)), says("is not JSON"));
  EXPECT_THAT(refusal("[1, 2]"), says("has no object \"costs\""));
  EXPECT_THAT(refusal("{\"costs\": 3}"), says("has no object \"costs\""));
  EXPECT_THAT(refusal("{\"costs\": {}}"), says("\"inside.latency_us\" is missing"));
  EXPECT_THAT(refusal(with("letter_bytes", "letter_byte")), says("\"letter_bytes\" is missing"));
  EXPECT_THAT(refusal(with("\"letter_bytes\"", "\"envelopes\": 1, \"letter_bytes\"")), says("\"envelopes\""));
  EXPECT_THAT(refusal(with("2048.0", "\"2048\"")), says("\"letter_bytes\" is \"2048\""));
  EXPECT_THAT(refusal(with("2048.0", "-1")), says("letter_bytes is -1"));
  EXPECT_THAT(refusal(with("2048.0", "1e300")), says("letter_bytes is 1e+300"));
}

TEST_F(CollectivesFile, MissingOrNotWritable) {
  try {
    read_collectives_file("/does/not/exist.json");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/does/not/exist.json: cannot be read (No such file"),
                                    HasSubstr("--tune-collectives")));
  }
  EXPECT_THROW(read_collectives_file("/"), FileError);
  EXPECT_THROW(write_collectives_file("/does/not/exist.json", {}, ""), FileError);
}

}  // namespace
}  // namespace rondo
