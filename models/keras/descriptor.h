// An owned file descriptor.
#pragma once

#include <unistd.h>

#include "runtime/base/handle.h"

namespace rondo::keras {

struct DescriptorTraits {
  static int empty() { return -1; }
  static void destroy(int descriptor) { close(descriptor); }
};
using Descriptor = Handle<int, DescriptorTraits>;

}  // namespace rondo::keras
