// Counts calls of operator new: programs that link count_allocations.cpp have it replaced.
#pragma once

#include <cstdint>

namespace rondo::test {

int64_t allocations_of_this_thread();
int64_t allocations_of_all_threads();
// Of all threads, without those made by shared libraries: oneDNN makes a few small ones in each execution.
// The caller's address tells: static libraries, and templates of the standard library, lie in the program.
int64_t allocations_of_own_code();

}  // namespace rondo::test
