#pragma once

#include <functional>

namespace rondo {

class World;
struct WorldOptions;

// The whole of main: makes the world, runs `body` on every rank and returns the exit code. An exception that
// leaves `body` is reported once for the job (supervisor.h) and ends the process on every rank; a signal to
// stop makes the code 128 + its number. At the end all ranks wait for each other.
int run(int argc, char** argv, const std::function<int(World&)>& body);
int run(int argc, char** argv, const WorldOptions& options, const std::function<int(World&)>& body);

}  // namespace rondo
