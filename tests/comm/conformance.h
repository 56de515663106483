// What every Communicator must do, as functions that all its ranks call.
#pragma once

#include <span>

namespace rondo {

class Communicator;

struct ConformanceCase {
  const char* name;
  void (*run)(Communicator& comm);
};

// Reductions of all types, operations, sizes and scales.
std::span<const ConformanceCase> reduction_cases();
// Broadcast, gather, scatter, all-to-all.
std::span<const ConformanceCase> move_cases();
// Asynchronous calls and process sets.
std::span<const ConformanceCase> order_cases();
// Random sequences on several process sets; the seed is printed.
std::span<const ConformanceCase> random_cases();
// Wrong local arguments.
std::span<const ConformanceCase> argument_cases();
// Errors between ranks, and what is left of the communicator after them.
std::span<const ConformanceCase> error_cases();
// runtime/comm/agreement.h.
std::span<const ConformanceCase> agreement_cases();

}  // namespace rondo
