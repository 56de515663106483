#include "runtime/launch/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <string>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"

namespace rondo {
namespace {

FailureReport first_hand(int rank, const std::string& text) {
  return {.rank = rank, .host = "here", .text = text};
}
FailureReport heard(int rank) {
  return {.rank = rank, .host = "here", .text = "news", .second_hand = true, .hearsay = true};
}

TEST(FailureReport, OneTextOfAll) {
  EXPECT_EQ(merge_reports({first_hand(0, "no data"), first_hand(1, "no data")}).text, "no data");
}

TEST(FailureReport, OneRankIsNamedWithItsHost) {
  EXPECT_EQ(merge_reports({heard(0), first_hand(1, "disk full"), heard(2)}).text, "rank 1 (here): disk full");
}

TEST(FailureReport, SomeRanksAndDifferentTexts) {
  EXPECT_EQ(merge_reports({first_hand(0, "a"), first_hand(1, "b"), first_hand(2, "a")}).text,
            "ranks 0, 2: a; rank 1 (here): b");
}

TEST(FailureReport, WhatWasSeenBeatsWhatWasHeard) {
  FailureReport seen{.rank = 1, .host = "here", .text = "rank 2 is silent", .second_hand = true};
  EXPECT_EQ(merge_reports({heard(0), seen}).text, "rank 1 (here): rank 2 is silent");
}

TEST(FailureReport, TheFirstHandReportGivesTheExitCode) {
  FailureReport wrong_option = first_hand(2, "wrong option");
  wrong_option.exit_code = 2;
  EXPECT_EQ(merge_reports({heard(0), heard(1), wrong_option}).exit_code, 2);
}

TEST(FailureReport, KindOfException) {
  EXPECT_FALSE(make_report(0, "h", FileError("x")).second_hand);
  EXPECT_FALSE(make_report(0, "h", std::runtime_error("x")).second_hand);
  EXPECT_TRUE(make_report(0, "h", PeerError("x")).second_hand);
  EXPECT_FALSE(make_report(0, "h", PeerError("x")).hearsay);
  const std::string published = published_text(first_hand(3, "disk full"));
  EXPECT_TRUE(make_report(0, "h", PeerError("rank 3 (here): " + published)).hearsay);
}

// One rank fails between two steps while the others wait for it in a collective: all learn it, meet on a
// second communicator, and have one text.
TEST(FailureReport, RanksMeetAfterOneFailed) {
  std::mutex mutex;
  std::multiset<std::string> texts;
  auto meeting = make_local_communicators(3);
  run_ranks(3, [&](Communicator& comm) {
    FailureReport report;
    try {
      if (comm.rank() == 1) raise<FileError>("disk full");
      float value = 1.0F;
      comm.all_reduce({&value, 1}, {&value, 1}, ReduceOp::kSum).wait();
      FAIL() << "the collective cannot succeed";
    } catch (const std::exception& error) {
      report = make_report(comm.rank(), "here", error);
      if (!report.hearsay) comm.publish_failure(published_text(report));
    }
    const auto joint = agree_on_report(*meeting[static_cast<size_t>(comm.rank())], report);
    const std::lock_guard guard(mutex);
    if (joint) texts.insert(joint->text);
  });
  EXPECT_EQ(texts.count("rank 1 (here): disk full"), 3U);
}

TEST(FailureReport, NobodyToMeet) {
  auto meeting = make_local_communicators(2);
  EXPECT_FALSE(agree_on_report(*meeting[0], first_hand(0, "alone")).has_value());
}

}  // namespace
}  // namespace rondo
