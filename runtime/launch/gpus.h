#pragma once

#include <string_view>
#include <vector>

namespace rondo {

// What `--gpus` asks for on each host: a count ("4"), or ids ("0,2,3", "1," is one id). Neither: all there
// are.
struct GpuRequest {
  bool given = false;
  int count = 0;         // how many are asked for
  std::vector<int> ids;  // empty when a count was given
};

// Throws InvalidArgument for what is neither, a negative number, or an id that comes twice. Empty text: not
// given.
GpuRequest parse_gpus(std::string_view text);

// Throws InvalidArgument when more GPUs, or ids, are asked for than the `available` ones of this host.
void check_gpus(const GpuRequest& request, int available);

}  // namespace rondo
