#include "runtime/launch/near_cores.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/launch/cores.h"

namespace rondo {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A machine of two nodes, as Linux shows it.
class NearCores : public testing::Test {
 protected:
  void SetUp() override {
    write(0, "0-3,8-11\n");
    write(1, "4-7,12-15\n");
    write(2, "\n");  // memory without processors
    write(3, "nonsense\n");
  }
  void TearDown() override { std::filesystem::remove_all(nodes_); }
  void write(int node, const std::string& list) {
    const std::string folder = nodes_ + "/node" + std::to_string(node);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/cpulist") << list;
  }
  std::vector<int> near(int node, const std::vector<int>& allowed) const {
    return processors_near(node, allowed, nodes_);
  }

  const std::string nodes_ = testing::TempDir() + "near_cores_" + std::to_string(getpid());
};

TEST_F(NearCores, AreThoseOfTheNodeThatTheProcessHas) {
  EXPECT_THAT(near(1, {0, 1, 2, 3, 4, 5, 12, 13}), ElementsAre(4, 5, 12, 13));
  EXPECT_THAT(near(0, {2, 9}), ElementsAre(2, 9));
}

TEST_F(NearCores, AreNoneWhereALauncherChoseOthers) {
  EXPECT_THAT(near(1, {0, 1}), IsEmpty());
}

TEST_F(NearCores, AreNoneWhereTheNodeIsNotKnown) {
  EXPECT_THAT(near(-1, {0, 1}), IsEmpty());
  EXPECT_THAT(near(2, {0, 1}), IsEmpty());
  EXPECT_THAT(near(3, {0, 1}), IsEmpty());
  EXPECT_THAT(near(7, {0, 1}), IsEmpty());
}

TEST(StayNear, NeverLeavesTheProcessorsOfTheProcess) {
  const std::vector<int> before = allowed_processors();
  const std::vector<int> now = stay_near(0);
  const std::vector<int> after = allowed_processors();
  if (now.empty()) {
    EXPECT_EQ(after, before);
  } else {
    EXPECT_EQ(after, now);
    EXPECT_LT(after.size(), before.size());
  }
  EXPECT_THAT(stay_near(-1), IsEmpty());
  EXPECT_EQ(allowed_processors(), after);
}

}  // namespace
}  // namespace rondo
