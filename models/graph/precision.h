#pragma once

#include "runtime/base/precision.h"

namespace rondo {

class KernelBackend;

// Throws Unavailable where models on this backend cannot compute in that precision; hosts compute in float32,
// which serves kTF32 as well.
void check_precision(const KernelBackend& backend, Precision precision);

}  // namespace rondo
