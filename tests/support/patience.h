#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace rondo::test {

// How long a test waits for something that takes `usual` at most: longer where the environment variable
// RONDO_TIMEOUT_FACTOR says that programs are slow, as those with sanitizers are.
inline std::chrono::milliseconds patience(std::chrono::milliseconds usual) {
  const char* factor = std::getenv("RONDO_TIMEOUT_FACTOR");
  return usual * std::max(1, factor != nullptr ? std::atoi(factor) : 1);
}

}  // namespace rondo::test
