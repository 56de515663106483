// Files are read and written by a helper program in a process of its own: libhdf5 crashes or hangs on some
// damaged files, and a program that only trains does not have to load it.
//
// The library carries the helper inside itself and starts it from memory (memfd_create), so every program
// that links the library has the right one, wherever either is installed. The environment variable
// RONDO_FILE_HELPER names another copy for systems that refuse to run programs from memory. The helper is
// started by posix_spawn, which, unlike fork, is safe beside MPI and threads. It gets the open file, a socket
// and limits of memory and time; what it sends is bounded and checked, and its crash, its silence or its
// refusal becomes a FileError that names the file.
#pragma once

#include <cstdint>
#include <string>

#include "models/keras/file_content.h"

namespace rondo::keras {

enum class Container : uint8_t { kH5, kZip };

struct HelperLimits {
  // Of the whole call, however slow the disk is; 0: 60 s and another for every 10 MiB of the file.
  double seconds = 0.0;
  // Of the helper's work on a core; 0: 3 s and another for every 50 MiB.
  int64_t cpu_seconds = 0;
  // Of the helper's address space; 0: 512 MiB and eight times the file.
  int64_t memory_bytes = 0;
};

// Which container the file begins as. Throws FileError for anything else, or for what is no file.
Container container_of(const std::string& path);

// Throws FileError: "<path>: <path inside the file>: <what is wrong>".
FileContent read_file(const std::string& path, const HelperLimits& limits = {});

// Writes into a new file beside `path`, makes sure that it is on the disk, and gives it the name `path`, so
// that whoever reads `path` finds all of the old or all of the new file, also after a crash or on a full
// disk. Throws FileError; the old file is then untouched and nothing is left behind.
void write_file(const std::string& path, Container container, const FileContent& content);

}  // namespace rondo::keras
