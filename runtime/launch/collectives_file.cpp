#include "runtime/launch/collectives_file.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCosts = "costs";
constexpr const char* kAdvice = "a file that `train --tune-collectives FILE` wrote is expected";

Json parse(const std::string& path) {
  std::ifstream file(path);
  if (!file) raise<FileError>("{}: cannot be read ({}); {}", path, std::strerror(errno), kAdvice);
  try {
    Json json = Json::parse(file);
    if (json.is_object() && json.contains(kCosts) && json[kCosts].is_object()) return json[kCosts];
  } catch (const std::ios_base::failure& error) {
    raise<FileError>("{}: cannot be read ({}); {}", path, error.what(), kAdvice);
  } catch (const Json::exception& error) {
    raise<FileError>("{}: is not JSON ({}); {}", path, error.what(), kAdvice);
  }
  raise<FileError>("{}: has no object \"{}\"; {}", path, kCosts, kAdvice);
}

}  // namespace

void write_collectives_file(const std::string& path, const CostModel& costs, const std::string& where) {
  Json values;
  for (const auto& [name, value] : costs.values()) values[name] = std::round(value * 1e4) / 1e4;
  std::ofstream file(path);
  file << Json{{"what", "what collectives cost (microseconds, bytes)"}, {"where", where}, {kCosts, values}}
              .dump(2)
       << '\n';
  file.close();
  if (!file) raise<FileError>("{}: cannot be written ({})", path, std::strerror(errno));
}

CostModel read_collectives_file(const std::string& path) {
  const Json values = parse(path);
  CostModel costs;
  for (const auto& [name, unused] : costs.values()) {
    if (!values.contains(name)) raise<FileError>("{}: \"{}\" is missing; {}", path, name, kAdvice);
  }
  for (const auto& [name, value] : values.items()) {
    if (!value.is_number())
      raise<FileError>("{}: \"{}\" is {}; it takes a number above 0", path, name, value.dump());
    try {
      costs.set(name, value.get<double>());
    } catch (const InvalidArgument& error) {
      raise<FileError>("{}: {}; {}", path, error.what(), kAdvice);
    }
  }
  return costs;
}

}  // namespace rondo
