#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "tests/comm/conformance.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

bool is_last(const Communicator& comm) {
  return comm.rank() == comm.size() - 1;
}
std::string last_rank(const Communicator& comm) {
  return "rank " + std::to_string(comm.size() - 1) + " (";
}
// "rank 0 (" or "ranks 0-2 (": all but the last.
std::string others(const Communicator& comm) {
  return comm.size() == 2 ? "rank 0 (" : "ranks 0-" + std::to_string(comm.size() - 2) + " (";
}

void strings_of_all_ranks(Communicator& comm) {
  const auto text = [](int rank) {
    return std::string(static_cast<size_t>(rank * 20000 % 70000), 'a') + "|";
  };
  const std::vector<std::string> all = all_gather_strings(comm, text(comm.rank()));
  ASSERT_EQ(all.size(), static_cast<size_t>(comm.size()));
  for (int r = 0; r < comm.size(); ++r) EXPECT_EQ(all[static_cast<size_t>(r)], text(r));
  const std::vector<std::string> empty = all_gather_strings(comm, "");
  EXPECT_EQ(empty, std::vector<std::string>(static_cast<size_t>(comm.size())));
}

std::string disagreement_text(Communicator& comm, const std::vector<Fact>& facts) {
  try {
    agree_on(comm, facts);
  } catch (const MismatchError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no disagreement was found";
  return {};
}

void agreement_is_silent(Communicator& comm) {
  agree_on(comm, std::vector<Fact>{{"--batch-size", "64"}, {"bucket plan", "a1b2"}});
  agree_on(comm, {});
}

void disagreement_names_fact_and_ranks(Communicator& comm) {
  if (comm.size() == 1) return;
  const std::string batch = is_last(comm) ? "32" : "64";
  const std::string text = disagreement_text(comm, {{"--epochs", "3"}, {"--batch-size", batch}});
  EXPECT_THAT(text, AllOf(HasSubstr("ranks disagree on --batch-size: \"64\" on " + others(comm)),
                          HasSubstr("\"32\" on " + last_rank(comm)), Not(HasSubstr("--epochs"))));
  for (const std::string& theirs : all_gather_strings(comm, text)) EXPECT_EQ(theirs, text);
  agreement_is_silent(comm);
}

void missing_fact_is_named(Communicator& comm) {
  if (comm.size() == 1) return;
  std::vector<Fact> facts{{"--epochs", "3"}};
  if (is_last(comm)) facts.push_back({"--seed", "1"});
  EXPECT_THAT(disagreement_text(comm, facts), AllOf(HasSubstr("--seed: nothing on " + others(comm)),
                                                    HasSubstr("\"1\" on " + last_rank(comm))));
}

void all_or_none_passes(Communicator& comm) {
  int calls = 0;
  all_or_none(comm, "opening the data", [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

void one_failure_fails_all(Communicator& comm) {
  if (comm.size() == 1) return;
  const auto action = [&] {
    if (is_last(comm)) throw FileError("/data/x: not found");
  };
  std::string text;
  try {
    all_or_none(comm, "opening the data", action);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const FileError& error) {
    text = error.what();
  }
  EXPECT_THAT(text, HasSubstr("opening the data failed on " + last_rank(comm)));
  EXPECT_THAT(text, HasSubstr("/data/x: not found"));
  for (const std::string& theirs : all_gather_strings(comm, text)) EXPECT_EQ(theirs, text);
}

void failing_alike_gives_the_bare_reason(Communicator& comm) {
  try {
    all_or_none(comm, "start", [] { throw FileError("/data/x: not found"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const FileError& error) {
    EXPECT_STREQ(error.what(), "/data/x: not found");
  }
}

void same_reason_is_told_once(Communicator& comm) {
  if (comm.size() == 1) return;
  try {
    all_or_none(comm, "start", [&] {
      if (!is_last(comm)) throw DeviceError("no memory");
      throw std::runtime_error("something else");
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(dynamic_cast<const DeviceError*>(&error) != nullptr, !is_last(comm));
    EXPECT_THAT(error.what(), AllOf(HasSubstr("start failed on " + others(comm)), HasSubstr("no memory; on "),
                                    HasSubstr(last_rank(comm)), HasSubstr("something else")));
  }
}

constexpr ConformanceCase kCases[] = {
    {"StringsOfAllRanks", strings_of_all_ranks},
    {"AgreementIsSilent", agreement_is_silent},
    {"DisagreementNamesFactAndRanks", disagreement_names_fact_and_ranks},
    {"MissingFactIsNamed", missing_fact_is_named},
    {"AllOrNonePasses", all_or_none_passes},
    {"OneFailureFailsAll", one_failure_fails_all},
    {"FailingAlikeGivesTheBareReason", failing_alike_gives_the_bare_reason},
    {"SameReasonIsToldOnce", same_reason_is_told_once},
};

}  // namespace

std::span<const ConformanceCase> agreement_cases() {
  return kCases;
}

}  // namespace rondo
