#pragma once

#include "runtime/comm/communicator.h"

namespace rondo {

// out = in * factor on device memory; floating types in float32 (float64 in float64), integers in float64,
// cut to whole numbers and bounded by the type's range.
void scale_span(Stream& stream, ConstSpan in, Span out, double factor);

// Between int16 or uint16 and int32; back, the upper bits are dropped.
void convert_span(Stream& stream, ConstSpan in, Span out);

}  // namespace rondo
