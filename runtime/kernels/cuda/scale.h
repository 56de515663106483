#pragma once

#include "runtime/comm/communicator.h"

namespace rondo {

// out = in * factor on device memory; floating types in float32 (float64 in float64), integers in float64,
// cut to whole numbers and bounded by the type's range.
void scale_span(Stream& stream, ConstSpan in, Span out, double factor);

}  // namespace rondo
