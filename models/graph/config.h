// Config: what a layer is made of, as keys and values with Keras' names; ConfigView: checked reading of one.
//
// Files and JSON are turned into these and back in models/keras, so that layers need no foreign header. A new
// layer takes part by two things (see models/layers/registry.h):
//
//   Config DenseLayer::config() const override {
//     Config config = Layer::config();
//     config.set("units", options_.units);
//     ...
//   }
//   std::shared_ptr<Layer> dense_from(const ConfigView& config) {
//     return layers::make_layer(layers::Dense{.units = config["units"].integer(), ...});
//   }
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/tensor/shape.h"

namespace rondo {

class ConfigValue;
struct ConfigEntry;
using ConfigList = std::vector<ConfigValue>;

// Keys with values, in the order in which they were set.
class Config {
 public:
  // Defined where an entry is complete, as the vector of them needs it.
  Config();
  Config(std::initializer_list<ConfigEntry> entries);
  Config(const Config& other);
  Config(Config&& other) noexcept;
  Config& operator=(const Config& other);
  Config& operator=(Config&& other) noexcept;
  ~Config();

  // Replaces the value of a key that is there.
  void set(std::string_view key, ConfigValue value);
  const ConfigValue* find(std::string_view key) const;  // null when absent
  const std::vector<ConfigEntry>& entries() const { return entries_; }

 private:
  std::vector<ConfigEntry> entries_;
};

class ConfigValue {
 public:
  using Value = std::variant<std::nullptr_t, bool, int64_t, double, std::string, ConfigList, Config>;

  ConfigValue(std::nullptr_t = nullptr) {}
  template <std::same_as<bool> T>
  ConfigValue(T value) : value_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) ConfigValue(T value) : value_(static_cast<int64_t>(value)) {}
  ConfigValue(double value) : value_(value) {}
  // The double with the same shortest decimal form: 0.1f is written as 0.1.
  ConfigValue(float value);
  ConfigValue(const char* value) : value_(std::string(value)) {}
  ConfigValue(std::string_view value) : value_(std::string(value)) {}
  ConfigValue(std::string value) : value_(std::move(value)) {}
  ConfigValue(ConfigList value) : value_(std::move(value)) {}
  ConfigValue(Config value) : value_(std::move(value)) {}
  // [a, b]
  ConfigValue(const std::array<int64_t, 2>& pair);

  const Value& value() const { return value_; }
  template <class T>
  const T* as() const {
    return std::get_if<T>(&value_);
  }

 private:
  Value value_ = nullptr;
};

struct ConfigEntry {
  std::string key;
  ConfigValue value;
};

// [null, extents...]: a shape with Keras' open batch.
ConfigValue batched_shape_config(const Shape& sample);

// A place in a Config, and the way there from the file. Every failure is a FileError that begins with that
// way and says what was expected: `m.h5: config.layers[3].config.units: expected a whole number, got "x"`.
// The Config must outlive the view.
class ConfigView {
 public:
  ConfigView(const ConfigValue& value, std::string where) : value_(&value), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  const ConfigValue& value() const { return *value_; }
  bool is_null() const { return value_->as<std::nullptr_t>() != nullptr; }
  bool is_list() const { return value_->as<ConfigList>() != nullptr; }
  bool is_config() const { return value_->as<Config>() != nullptr; }
  bool is_string() const { return value_->as<std::string>() != nullptr; }
  bool is_integer() const { return value_->as<int64_t>() != nullptr; }

  bool boolean() const;
  // From -2^31 to 2^31, so that products of two do not overflow.
  int64_t integer() const;
  double number() const;  // a whole number is one, too
  const std::string& string() const;
  std::vector<ConfigView> list() const;
  // Two whole numbers; one stands for both.
  std::array<int64_t, 2> pair() const;
  // [null, extents...] without the batch, whose extent may also be a number. Throws for other open extents,
  // extents below 1, more axes than Shape has, and more than 2^31 elements.
  Shape sample_shape() const;

  // The value of a key, which must be there.
  ConfigView operator[](std::string_view key) const;
  // Absent keys and null are the same here: nothing.
  std::optional<ConfigView> find(std::string_view key) const;
  bool boolean(std::string_view key, bool preset) const;
  int64_t integer(std::string_view key, int64_t preset) const;
  double number(std::string_view key, double preset) const;
  float real(std::string_view key, float preset) const;
  std::string string(std::string_view key, std::string_view preset) const;
  std::array<int64_t, 2> pair(std::string_view key, std::array<int64_t, 2> preset) const;

  // For settings that this library has no counterpart for: throws unless the key is absent, null or false.
  void require_unset(std::string_view key) const;
  // Throws unless the key is absent, null or `only`.
  void require_string(std::string_view key, std::string_view only) const;
  // Throws FileError: "<where>: expected <expected>, got <value>".
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  const ConfigValue* value_;
  std::string where_;
};

}  // namespace rondo
