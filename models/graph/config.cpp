#include "models/graph/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/base/error.h"

namespace rondo {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// A value as a message shows it.
std::string shown(const ConfigValue& value) {
  return std::visit(
      Overloaded{[](std::nullptr_t) { return std::string("null"); },
                 [](bool flag) { return std::string(flag ? "true" : "false"); },
                 [](int64_t number) { return std::to_string(number); },
                 [](double number) { return fmt::format("{}", number); },
                 [](const std::string& text) {
                   return text.size() <= 60 ? fmt::format("\"{}\"", text)
                                            : fmt::format("\"{}...\"", text.substr(0, 57));
                 },
                 [](const ConfigList& list) { return fmt::format("a list of {}", list.size()); },
                 [](const Config& config) {
                   return fmt::format("an object with {} keys", config.entries().size());
                 }},
      value.value());
}

}  // namespace

Config::Config() = default;
Config::Config(const Config& other) = default;
Config::Config(Config&& other) noexcept = default;
Config& Config::operator=(const Config& other) = default;
Config& Config::operator=(Config&& other) noexcept = default;
Config::~Config() = default;

Config::Config(std::initializer_list<ConfigEntry> entries) : entries_(entries) {}

void Config::set(std::string_view key, ConfigValue value) {
  for (ConfigEntry& entry : entries_) {
    if (entry.key != key) continue;
    entry.value = std::move(value);
    return;
  }
  entries_.push_back({std::string(key), std::move(value)});
}

const ConfigValue* Config::find(std::string_view key) const {
  for (const ConfigEntry& entry : entries_) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

ConfigValue::ConfigValue(float value) : value_(std::strtod(fmt::format("{}", value).c_str(), nullptr)) {}

ConfigValue::ConfigValue(const std::array<int64_t, 2>& pair) : value_(ConfigList{pair[0], pair[1]}) {}

ConfigValue batched_shape_config(const Shape& sample) {
  ConfigList list{nullptr};
  for (const int64_t extent : sample.extents()) list.emplace_back(extent);
  return list;
}

bool ConfigView::boolean() const {
  const bool* flag = value_->as<bool>();
  if (flag == nullptr) fail("true or false");
  return *flag;
}

int64_t ConfigView::integer() const {
  const int64_t* number = value_->as<int64_t>();
  if (number == nullptr) fail("a whole number");
  if (*number < -kMost || *number > kMost) fail("a whole number between -2^31 and 2^31");
  return *number;
}

double ConfigView::number() const {
  if (const int64_t* whole = value_->as<int64_t>()) return static_cast<double>(*whole);
  const double* number = value_->as<double>();
  if (number == nullptr) fail("a number");
  return *number;
}

const std::string& ConfigView::string() const {
  const std::string* text = value_->as<std::string>();
  if (text == nullptr) fail("a string");
  return *text;
}

std::vector<ConfigView> ConfigView::list() const {
  const ConfigList* list = value_->as<ConfigList>();
  if (list == nullptr) fail("a list");
  std::vector<ConfigView> views;
  for (size_t i = 0; i < list->size(); ++i) views.emplace_back((*list)[i], fmt::format("{}[{}]", where_, i));
  return views;
}

std::array<int64_t, 2> ConfigView::pair() const {
  if (is_integer()) return {integer(), integer()};
  const ConfigList* list = value_->as<ConfigList>();
  if (list == nullptr || list->size() != 2) fail("two whole numbers, or one for both");
  const auto views = this->list();
  return {views[0].integer(), views[1].integer()};
}

Shape ConfigView::sample_shape() const {
  const std::vector<ConfigView> views = list();
  if (views.empty() || views.size() > static_cast<size_t>(Shape::kMaxRank)) {
    fail(fmt::format("a shape of 1 to {} axes, the batch first", Shape::kMaxRank));
  }
  if (!views[0].is_null()) views[0].integer();
  std::vector<int64_t> extents;
  int64_t elements = 1;
  for (size_t axis = 1; axis < views.size(); ++axis) {
    const int64_t extent = views[axis].is_null() ? 0 : views[axis].integer();
    if (extent < 1) views[axis].fail("an extent of at least 1 (open extents are not supported)");
    if (extent > kMost / elements) fail("a shape of at most 2^31 elements");
    elements *= extent;
    extents.push_back(extent);
  }
  return Shape(extents);
}

ConfigView ConfigView::operator[](std::string_view key) const {
  const Config* config = value_->as<Config>();
  if (config == nullptr) fail("an object");
  const ConfigValue* found = config->find(key);
  if (found == nullptr) raise<FileError>("{}: has no \"{}\"", where_, key);
  return {*found, fmt::format("{}.{}", where_, key)};
}

std::optional<ConfigView> ConfigView::find(std::string_view key) const {
  const Config* config = value_->as<Config>();
  if (config == nullptr) fail("an object");
  const ConfigValue* found = config->find(key);
  if (found == nullptr || found->as<std::nullptr_t>() != nullptr) return std::nullopt;
  return ConfigView(*found, fmt::format("{}.{}", where_, key));
}

bool ConfigView::boolean(std::string_view key, bool preset) const {
  const auto found = find(key);
  return found ? found->boolean() : preset;
}
int64_t ConfigView::integer(std::string_view key, int64_t preset) const {
  const auto found = find(key);
  return found ? found->integer() : preset;
}
double ConfigView::number(std::string_view key, double preset) const {
  const auto found = find(key);
  return found ? found->number() : preset;
}
float ConfigView::real(std::string_view key, float preset) const {
  const auto found = find(key);
  return found ? static_cast<float>(found->number()) : preset;
}
std::string ConfigView::string(std::string_view key, std::string_view preset) const {
  const auto found = find(key);
  return found ? found->string() : std::string(preset);
}
std::array<int64_t, 2> ConfigView::pair(std::string_view key, std::array<int64_t, 2> preset) const {
  const auto found = find(key);
  return found ? found->pair() : preset;
}

void ConfigView::require_unset(std::string_view key) const {
  const auto found = find(key);
  if (!found) return;
  if (const bool* flag = found->value().as<bool>(); flag != nullptr && !*flag) return;
  raise<FileError>("{}: is {}, which is not supported", found->where(), shown(found->value()));
}

void ConfigView::require_string(std::string_view key, std::string_view only) const {
  const auto found = find(key);
  if (found && found->string() != only) {
    raise<FileError>("{}: is \"{}\"; only \"{}\" is supported", found->where(), found->string(), only);
  }
}

void ConfigView::fail(std::string_view expected) const {
  raise<FileError>("{}: expected {}, got {}", where_, expected, shown(*value_));
}

}  // namespace rondo
