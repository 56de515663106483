// The one layout of this backend that is not canonical: that of convolution kernels, (filters, kernel height,
// kernel width, channels in a group), which cuDNN calls NHWC filters. The canonical order has the filters
// last.
#pragma once

#include <cstdint>

#include "runtime/tensor/tensor.h"

namespace rondo::cuda {

Layout filters_first_layout(int64_t bytes);
bool filters_first(const Layout& layout);

}  // namespace rondo::cuda
