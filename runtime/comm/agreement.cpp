#include "runtime/comm/agreement.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"

namespace rondo {
namespace {

void append(std::string& out, const std::string& text) {
  const auto size = static_cast<uint64_t>(text.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof(size));
  out += text;
}

std::string take(const std::string& from, size_t& at) {
  uint64_t size = 0;
  RONDO_CHECK(at + sizeof(size) <= from.size());
  std::memcpy(&size, from.data() + at, sizeof(size));
  at += sizeof(size);
  RONDO_CHECK(at + size <= from.size());
  std::string text = from.substr(at, size);
  at += size;
  return text;
}

std::string serialize(std::span<const Fact> facts) {
  std::string out;
  for (const Fact& fact : facts) {
    append(out, fact.name);
    append(out, fact.value);
  }
  return out;
}

// "ranks 0-2 (node1, node2), 5 (node3)" and "rank 3 (node7)": ranges, with the hosts they run on.
std::string ranks_text(const Topology& topology, const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::vector<std::string> hosts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    text += end - i == 1 ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    i = end;
  }
  for (const int rank : ranks) {
    const auto host = static_cast<size_t>(topology.host_of.at(static_cast<size_t>(rank)));
    const std::string& name = topology.host_names.at(host);
    if (std::find(hosts.begin(), hosts.end(), name) == hosts.end()) hosts.push_back(name);
  }
  constexpr size_t kShownHosts = 4;
  text += " (";
  for (size_t i = 0; i < std::min(hosts.size(), kShownHosts); ++i) text += (i > 0 ? ", " : "") + hosts[i];
  if (hosts.size() > kShownHosts) text += fmt::format(", and {} more hosts", hosts.size() - kShownHosts);
  return text + ")";
}

// Ranks grouped by what they say, in the order of each group's lowest rank.
template <class T>
std::vector<std::pair<T, std::vector<int>>> group_by_value(const std::vector<T>& values) {
  std::vector<std::pair<T, std::vector<int>>> groups;
  for (size_t r = 0; r < values.size(); ++r) {
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == values[r]; });
    if (same == groups.end()) {
      groups.push_back({values[r], {static_cast<int>(r)}});
    } else {
      same->second.push_back(static_cast<int>(r));
    }
  }
  return groups;
}

std::string disagreement(const Topology& topology, const std::vector<std::string>& all) {
  using Values = std::map<std::string, std::string>;
  std::vector<Values> of_rank;
  std::vector<std::string> names;  // in the order of their first mention
  for (const std::string& serialized : all) {
    Values values;
    for (size_t at = 0; at < serialized.size();) {
      std::string name = take(serialized, at);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      values[std::move(name)] = take(serialized, at);
    }
    of_rank.push_back(std::move(values));
  }
  std::string text;
  for (const std::string& name : names) {
    std::vector<std::optional<std::string>> values;
    for (const Values& own : of_rank) {
      const auto found = own.find(name);
      values.push_back(found == own.end() ? std::nullopt : std::optional(found->second));
    }
    const auto groups = group_by_value(values);
    if (groups.size() < 2) continue;
    text += fmt::format("{}{}: ", text.empty() ? "ranks disagree on " : "; on ", name);
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto& [value, ranks] = groups[g];
      text += fmt::format("{}{} on {}", g > 0 ? ", " : "", value ? fmt::format("\"{}\"", *value) : "nothing",
                          ranks_text(topology, ranks));
    }
  }
  if (text.empty()) text = "ranks disagree: they list the same facts in different order";
  return text + ". Start all ranks with the same program, options and data";
}

// The exceptions of error.h, by a number that travels.
enum class ErrorKind : char {
  kNone = '0',
  kError,
  kInvalidArgument,
  kFile,
  kDevice,
  kUnavailable,
  kMismatch,
  kPeer,
  kNumeric,
  kInternal,
  kOutOfMemory
};

ErrorKind kind_of(const Error& error) {
  if (dynamic_cast<const InvalidArgument*>(&error) != nullptr) return ErrorKind::kInvalidArgument;
  if (dynamic_cast<const FileError*>(&error) != nullptr) return ErrorKind::kFile;
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) return ErrorKind::kOutOfMemory;
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) return ErrorKind::kDevice;
  if (dynamic_cast<const Unavailable*>(&error) != nullptr) return ErrorKind::kUnavailable;
  if (dynamic_cast<const MismatchError*>(&error) != nullptr) return ErrorKind::kMismatch;
  if (dynamic_cast<const PeerError*>(&error) != nullptr) return ErrorKind::kPeer;
  if (dynamic_cast<const NumericError*>(&error) != nullptr) return ErrorKind::kNumeric;
  if (dynamic_cast<const InternalError*>(&error) != nullptr) return ErrorKind::kInternal;
  return ErrorKind::kError;
}

[[noreturn]] void throw_kind(ErrorKind kind, const std::string& text) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      throw InvalidArgument(text);
    case ErrorKind::kFile:
      throw FileError(text);
    case ErrorKind::kDevice:
      throw DeviceError(text);
    case ErrorKind::kOutOfMemory:
      throw OutOfMemory(text);
    case ErrorKind::kUnavailable:
      throw Unavailable(text);
    case ErrorKind::kMismatch:
      throw MismatchError(text);
    case ErrorKind::kPeer:
      throw PeerError(text);
    case ErrorKind::kNumeric:
      throw NumericError(text);
    case ErrorKind::kInternal:
      throw InternalError(text);
    case ErrorKind::kNone:
    case ErrorKind::kError:
      break;
  }
  throw Error(text);
}

// What the action threw: one character for the type, then the message. Empty: nothing.
std::string outcome_of(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const Error& error) {
    return static_cast<char>(kind_of(error)) + std::string(error.what());
  } catch (const std::exception& error) {
    return static_cast<char>(ErrorKind::kError) + std::string(error.what());
  } catch (...) {
    return static_cast<char>(ErrorKind::kError) + std::string("an exception that is not a std::exception");
  }
}

}  // namespace

std::vector<std::string> all_gather_strings(Communicator& of, const std::string& mine) {
  Communicator& comm = of.host();
  const auto size = static_cast<size_t>(comm.size());
  const auto own_bytes = static_cast<int64_t>(mine.size());
  const std::vector<int64_t> ones(size, 1);
  std::vector<int64_t> bytes(size);
  comm.all_gather_v(span_of(std::span(&own_bytes, 1)), span_of(std::span(bytes)), ones,
                    {.label = "string lengths"})
      .wait();
  std::string joined(static_cast<size_t>(std::accumulate(bytes.begin(), bytes.end(), int64_t{0})), '\0');
  const ConstSpan in{mine.data(), own_bytes, DType::kU8};
  const Span out{joined.data(), static_cast<int64_t>(joined.size()), DType::kU8};
  comm.all_gather_v(in, out, bytes, {.label = "strings"}).wait();
  std::vector<std::string> all;
  size_t at = 0;
  for (const int64_t n : bytes) {
    all.push_back(joined.substr(at, static_cast<size_t>(n)));
    at += static_cast<size_t>(n);
  }
  return all;
}

void agree_on(Communicator& of, std::span<const Fact> facts) {
  Communicator& comm = of.host();
  const std::string mine = serialize(facts);
  const XXH128_hash_t hash = XXH3_128bits(mine.data(), mine.size());
  const std::array<uint64_t, 2> digest{hash.low64, hash.high64};
  const std::vector<int64_t> counts(static_cast<size_t>(comm.size()), sizeof(digest));
  std::vector<std::array<uint64_t, 2>> digests(static_cast<size_t>(comm.size()));
  comm.all_gather_v({digest.data(), sizeof(digest), DType::kU8},
                    {digests.data(), static_cast<int64_t>(sizeof(digest) * digests.size()), DType::kU8},
                    counts, {.label = "agreement"})
      .wait();
  // All ranks hold the same digests, so all of them take the same branch.
  if (std::adjacent_find(digests.begin(), digests.end(), std::not_equal_to<>()) == digests.end()) return;
  throw MismatchError(disagreement(comm.topology(), all_gather_strings(comm, mine)));
}

void all_or_none(Communicator& of, const std::string& what, const std::function<void()>& action) {
  Communicator& comm = of.host();
  const std::string mine = outcome_of(action);
  uint8_t failed = mine.empty() ? 0 : 1;
  const Span flag = span_of(std::span(&failed, 1));
  comm.all_reduce(flag, flag, ReduceOp::kMax, {.label = "outcome"}).wait();
  if (failed == 0) return;
  const std::vector<std::string> all = all_gather_strings(comm, mine);
  std::string text;
  auto kind = mine.empty() ? ErrorKind::kNone : static_cast<ErrorKind>(mine.front());
  const auto groups = group_by_value(all);
  if (groups.size() == 1) throw_kind(kind, mine.substr(1));
  for (const auto& [outcome, ranks] : groups) {
    if (outcome.empty()) continue;
    if (kind == ErrorKind::kNone) kind = static_cast<ErrorKind>(outcome.front());
    text += fmt::format("{}{}: {}", text.empty() ? fmt::format("{} failed on ", what) : "; on ",
                        ranks_text(comm.topology(), ranks), outcome.substr(1));
  }
  throw_kind(kind, text);
}

}  // namespace rondo
