// What collectives cost on a cluster, measured once and kept in a file.
#pragma once

#include <string>

#include "runtime/comm/cost_model.h"

namespace rondo {

// The environment variable that names the file where the program does not.
inline constexpr const char* kCollectivesVariable = "RONDO_COLLECTIVES";

// A JSON object whose "costs" holds each of CostModel's values under its name; `where` says what was
// measured, for people. write throws FileError when the file cannot be written, read when it cannot be read
// or holds something else: a value is missing, unknown or no number above 0.
void write_collectives_file(const std::string& path, const CostModel& costs, const std::string& where);
CostModel read_collectives_file(const std::string& path);

}  // namespace rondo
