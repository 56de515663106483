// What every Communicator must do, as functions that all its ranks call.
#pragma once

#include <span>

namespace rondo {

class Communicator;

struct ConformanceCase {
  const char* name;
  void (*run)(Communicator& comm);
};

// Values, sizes, types, operations: leaves the communicator usable.
std::span<const ConformanceCase> collective_cases();
// Errors, and what is left of the communicator after them.
std::span<const ConformanceCase> error_cases();
// runtime/comm/agreement.h.
std::span<const ConformanceCase> agreement_cases();

}  // namespace rondo
