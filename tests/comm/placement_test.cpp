#include "runtime/comm/shared/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/shared/sharing.h"
#include "tests/comm/shared_ranks.h"

namespace rondo {
namespace {

using testing::ElementsAre;

// Two nodes of two cores of two processors each; processors are numbered as many machines do: all first
// threads of the cores, then all second ones, and cores alternate between the nodes.
const char* const kMachine = "numa:2 core:2 pu:2(indexes=0,4,2,6,1,5,3,7)";

TEST(Placement, IsReadFromTheMachine) {
  const auto machine = processor_placements(kMachine);
  ASSERT_EQ(machine.size(), 8U);
  const auto node = [&](int processor) { return machine.at(processor).node; };
  const auto core = [&](int processor) { return machine.at(processor).core; };
  EXPECT_THAT(std::vector({node(0), node(1), node(2), node(3)}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(std::vector({core(0), core(1), core(2), core(3)}), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(std::vector({core(4), core(5), core(6), core(7)}), ElementsAre(0, 2, 1, 3));
}

TEST(Placement, OneNodeIsAMachineToo) {
  const auto machine = processor_placements("core:4 pu:1");
  ASSERT_EQ(machine.size(), 4U);
  EXPECT_EQ(machine.at(3).node, 0);
  EXPECT_EQ(machine.at(3).core, 3);
}

TEST(Placement, NonsenseIsNoMachine) {
  EXPECT_TRUE(processor_placements("cabbage:3").empty());
  EXPECT_EQ(place({}, std::vector{1, 2}).core, 0);
}

TEST(Placement, AProcessBeginsWhereItsFirstCoreIs) {
  const auto machine = processor_placements(kMachine);
  const Placement bound = place(machine, std::vector{7, 3});
  EXPECT_EQ(bound.node, 1);
  EXPECT_EQ(bound.core, 3);
  const Placement loose = place(machine, std::vector{7, 2, 3});
  EXPECT_EQ(loose.node, 0);
  EXPECT_EQ(loose.core, 1);
  EXPECT_EQ(place(machine, std::vector{99}).core, 0);  // not of this machine
}

TEST(Placement, RanksAreSortedByNodeThenCoreThenRank) {
  const auto machine = processor_placements(kMachine);
  const auto places = [&](const std::vector<std::vector<int>>& bindings) {
    std::vector<Placement> members;
    for (const auto& binding : bindings) members.push_back(place(machine, binding));
    return places_of(members);
  };
  // As launchers bind: by core, by node in turn, and not at all.
  EXPECT_THAT(places({{0, 4}, {2, 6}, {1, 5}, {3, 7}}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(places({{0, 4}, {1, 5}, {2, 6}, {3, 7}}), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(places({{3}, {1}, {2}, {0}}), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(places({{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}}), ElementsAre(0, 1, 2));
  EXPECT_THAT(places({{1, 3}, {0, 2}, {1, 3}, {0, 2}}), ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(places({}), ElementsAre());
}

TEST(Placement, ThisMachineHasThisProcess) {
  EXPECT_FALSE(processor_placements().empty());
  EXPECT_GE(own_placement().core, 0);
}

// Ranks bound in reverse: their parts lie, and their shares are cut, in the order of the cores; sums do not
// care.
TEST(Placement, DecidesWhereTheRanksOfAGroupWork) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "takes two cores";
  setenv("HWLOC_SYNTHETIC", "numa:2 core:1 pu:1", 1);
  fork_ranks(2, [](Bootstrap& ranks) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(1 - ranks.rank(), &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) return;  // not ours to say
    const auto world = SharedWorld::join(ranks);
    const auto group = make_group(world, ranks);
    EXPECT_EQ(group->place(0), 1);
    EXPECT_EQ(group->place(1), 0);
    const std::vector<int> both{0, 1};
    EXPECT_THAT(world->sharing().places(both), ElementsAre(1, 0));
    const Mapping parts = world->sharing().map(ranks, both, 4096);
    EXPECT_EQ(parts.part(0) - parts.part(1), 4096);
    const Buffer buffer = group->allocate(ranks, 40000);
    const Span span{buffer.data(), 10000, DType::kF32};
    for (int i = 0; i < 10000; ++i) buffer.as<float>()[i] = static_cast<float>(i * (ranks.rank() + 1));
    run(*group, {.transfer = Transfer::kAllReduce, .in = span, .out = span, .reduction = {}});
    for (int i = 0; i < 10000; ++i) ASSERT_EQ(buffer.as<float>()[i], static_cast<float>(3 * i));
  });
  unsetenv("HWLOC_SYNTHETIC");
}

}  // namespace
}  // namespace rondo
