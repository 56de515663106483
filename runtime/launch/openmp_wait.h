#pragma once

namespace rondo {

// How OpenMP's idle threads wait can be chosen only before its library is loaded, through the environment. By
// default they spin for milliseconds after every parallel region: on a machine that runs anything else, that
// is many times slower than one thread. This restarts the program once, in place, with a short spin, unless
// the user chose (OMP_WAIT_POLICY, GOMP_SPINCOUNT), `threads` or the affinity mask leaves one thread, or the
// restart fails. To be called first in main; `threads` 0: not known yet.
void restart_with_short_openmp_waits(char** argv, int threads);

}  // namespace rondo
