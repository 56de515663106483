#define RONDO_REDUCE_VARIANT reduce_baseline
#include "runtime/comm/reduce_kernels.inl"
