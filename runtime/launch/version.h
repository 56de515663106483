#pragma once

#include <string>

namespace rondo {

std::string version();  // of Rondo: "0.1.0"

// What tells two builds of a program apart: the linker's build id, or the file's size where there is none.
std::string build_id();

// What this build was made with, one part a line: "MPI      Open MPI v4.1.4", "CUDA     not built", ...
std::string parts_of_this_build();

// The same libraries in one line: "Open MPI v4.1.4, oneDNN 2.6.3, CUDA 13.0, NCCL 2.28.9, cuDNN 9.19.0".
std::string libraries_of_this_build();

}  // namespace rondo
