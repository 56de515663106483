// Shapes that follow from a specification: the same checks and the same messages in every backend.
#pragma once

#include <string>

#include "runtime/tensor/tensor.h"

namespace rondo {

struct ConcatSpec;
struct Conv2DSpec;
struct Pool2DSpec;

// "conv2d (64, 28, 28, 1) with 32 filters 3x3": names the operation in messages.
std::string describe(const Conv2DSpec& spec);

// Of the output, and of the parameter in its canonical order. Throw InvalidArgument where the specification
// makes no sense.
Shape output_shape(const Conv2DSpec& spec);
Shape kernel_shape(const Conv2DSpec& spec);
Shape output_shape(const Pool2DSpec& spec);
TensorDesc output_desc(const ConcatSpec& spec);

}  // namespace rondo
