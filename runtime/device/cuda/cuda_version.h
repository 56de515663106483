#pragma once

#include <string>

namespace rondo::cuda {

std::string runtime_version();  // "13.0": of the library in use
std::string driver_version();   // "13.0": the newest that the installed driver supports; "none" without one

}  // namespace rondo::cuda
