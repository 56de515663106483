// Start-up agreement: what must be equal on all ranks is compared before it can do harm. All of it travels
// over Communicator::host().
#pragma once

#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace rondo {

class Communicator;

// One thing on which all ranks must agree, e.g. {"--batch-size", "64"} or {"bucket plan", "a1b2..."}.
struct Fact {
  std::string name;
  std::string value;
};

// Every rank's string, in rank order, on every rank. Lengths may differ.
std::vector<std::string> all_gather_strings(Communicator& comm, const std::string& mine);

// Throws the same MismatchError on every rank when a fact differs or is missing somewhere. The text names
// each such fact and which ranks (with host) hold which value:
//   ranks disagree on --batch-size: "64" on ranks 0-2, "32" on rank 3 (node7). Start all ranks with ...
// Compares digests first, so agreement costs one small collective.
void agree_on(Communicator& comm, std::span<const Fact> facts);

// Runs `action` on every rank, then shares the outcome: if it threw anywhere, every rank throws an error with
// one text: the bare reason when all ranks say the same, else the ranks that failed and why. On the failing
// ranks the type of the exception is kept when it is one of error.h.
void all_or_none(Communicator& comm, const std::string& what, const std::function<void()>& action);

}  // namespace rondo
