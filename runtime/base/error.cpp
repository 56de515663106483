#include "runtime/base/error.h"

#include <cstring>

namespace rondo {

void fail_check(const char* expression, const char* file, int line) {
  const char* room = std::strstr(file, "runtime/");
  if (room == nullptr) room = std::strstr(file, "models/");
  raise<InternalError>("broken invariant `{}` at {}:{}; please report this", expression,
                       room != nullptr ? room : file, line);
}

}  // namespace rondo
