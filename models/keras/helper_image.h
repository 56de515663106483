// The bytes of the helper program.
#pragma once

#include <span>

namespace rondo::keras {

std::span<const char> helper_image();

}  // namespace rondo::keras
