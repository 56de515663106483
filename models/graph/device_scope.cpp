#include "models/graph/device_scope.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace rondo {
namespace {

// A scope reaches into calls that know nothing of it, on its own thread: the one thing a variable of the
// thread is for. Nothing but the calls of layers reads it.
thread_local int innermost = -1;

// The number behind the name of a kind of device; -1 where `text` is no such name.
int device_number(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string_view rest = lower;
  const auto skip = [&](std::string_view prefix) {
    const bool there = rest.substr(0, prefix.size()) == prefix;
    if (there) rest.remove_prefix(prefix.size());
    return there;
  };
  skip("/");
  skip("device:");
  if (!skip("gpu:") && !skip("cpu:")) return -1;
  int number = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return error == std::errc() && end == rest.data() + rest.size() ? number : -1;
}

}  // namespace

DeviceScope::DeviceScope(int device) : outer_(innermost) {
  require(device >= 0, "device_scope: device {} does not exist; a rank's devices are numbered from 0",
          device);
  innermost = device;
}

DeviceScope::~DeviceScope() {
  innermost = outer_;
}

DeviceScope device_scope(int device) {
  return DeviceScope(device);
}

DeviceScope device_scope(std::string_view name) {
  const int device = device_number(name);
  require(device >= 0,
          "device_scope: \"{}\" names no device; expected a kind and a number from 0, such as \"/gpu:1\", "
          "\"/cpu:0\" or \"/device:GPU:1\"",
          name);
  return DeviceScope(device);
}

int scoped_device() {
  return innermost;
}

}  // namespace rondo
