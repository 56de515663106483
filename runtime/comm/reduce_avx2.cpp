#if defined(__x86_64__)
#define RONDO_REDUCE_VARIANT reduce_avx2
#include "runtime/comm/reduce_kernels.inl"
#endif
