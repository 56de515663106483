// Counts calls of operator new: programs that link count_allocations.cpp have it replaced.
#pragma once

#include <cstdint>

namespace rondo::test {

int64_t allocations_of_this_thread();
int64_t allocations_of_all_threads();

}  // namespace rondo::test
