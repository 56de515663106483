#include "runtime/launch/gpus.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/error.h"

namespace rondo {
namespace {

int parse_number(std::string_view part, std::string_view whole) {
  int value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  require(error == std::errc() && end == part.data() + part.size() && value >= 0,
          "--gpus is \"{}\", but \"{}\" is not a number of at least 0; give a count (--gpus 2) or ids "
          "(--gpus 0,3)",
          whole, part);
  return value;
}

}  // namespace

GpuRequest parse_gpus(std::string_view text) {
  GpuRequest request;
  if (text.empty()) return request;
  request.given = true;
  if (text.find(',') == std::string_view::npos) {
    request.count = parse_number(text, text);
    return request;
  }
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const int id = parse_number(rest.substr(0, comma), text);
    require(std::find(request.ids.begin(), request.ids.end(), id) == request.ids.end(),
            "--gpus is \"{}\", which names GPU {} twice; name each once", text, id);
    request.ids.push_back(id);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  request.count = static_cast<int>(request.ids.size());
  return request;
}

void check_gpus(const GpuRequest& request, int available) {
  if (!request.given) return;
  for (const int id : request.ids) {
    require(id<available, "--gpus asks for GPU {}, but this host has {} that can be used{}", id, available,
                available> 0
                ? "; ids count from 0"
                : "; leave --gpus out to train on the host's cores");
  }
  require(request.count <= available, "--gpus asks for {} GPUs, but this host has {} that can be used{}",
          request.count, available, available > 0 ? "" : "; leave --gpus out to train on the host's cores");
}

}  // namespace rondo
