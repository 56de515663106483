#include "models/keras/json.h"

#include <fmt/core.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace rondo::keras {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostBytes = size_t{16} << 20;
constexpr size_t kMostDepth = 100;
constexpr size_t kMostKeys = 512;

// Builds the value as the parser goes, without recursion, and refuses before memory is spent.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  ConfigValue take() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return add(static_cast<double>(value));
    }
    return add(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool start_object(std::size_t) override { return open(Frame{.config = Config()}); }
  bool start_array(std::size_t) override { return open(Frame{.list = ConfigList()}); }
  bool key(string_t& key) override {
    Config& config = *stack_.back().config;
    if (config.find(key) != nullptr) return refuse(fmt::format("the key \"{}\" is there twice", key));
    if (config.entries().size() == kMostKeys) return refuse("an object has more than 512 keys");
    config.set(key, nullptr);
    stack_.back().key = std::move(key);
    return true;
  }
  bool end_object() override {
    ConfigValue value = std::move(*stack_.back().config);
    stack_.pop_back();
    return add(std::move(value));
  }
  bool end_array() override {
    ConfigValue value = std::move(*stack_.back().list);
    stack_.pop_back();
    return add(std::move(value));
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return refuse(fmt::format("is not JSON at byte {}", position));
  }

 private:
  struct Frame {
    std::optional<Config> config = std::nullopt;
    std::optional<ConfigList> list = std::nullopt;
    std::string key = {};
  };

  bool open(Frame frame) {
    if (stack_.size() == kMostDepth) return refuse("is nested deeper than 100 levels");
    stack_.push_back(std::move(frame));
    return true;
  }
  bool add(ConfigValue value) {
    if (stack_.empty()) {
      root_ = std::move(value);
    } else if (stack_.back().list) {
      stack_.back().list->push_back(std::move(value));
    } else {
      stack_.back().config->set(stack_.back().key, std::move(value));
    }
    return true;
  }
  bool refuse(std::string text) {
    error_ = std::move(text);
    return false;
  }

  ConfigValue root_;
  std::vector<Frame> stack_;
  std::string error_;
};

Json json_of(const ConfigValue& value) {
  return std::visit(
      [](const auto& held) -> Json {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, ConfigList>) {
          Json list = Json::array();
          for (const ConfigValue& entry : held) list.push_back(json_of(entry));
          return list;
        } else if constexpr (std::is_same_v<T, Config>) {
          Json object = Json::object();
          for (const ConfigEntry& entry : held.entries()) object[entry.key] = json_of(entry.value);
          return object;
        } else {
          return Json(held);
        }
      },
      value.value());
}

}  // namespace

ConfigValue parse_json(std::string_view text, const std::string& where) {
  if (text.size() > kMostBytes) raise<FileError>("{}: the JSON is larger than 16 MiB", where);
  Builder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    raise<FileError>("{}: {}", where, builder.error());
  }
  return builder.take();
}

std::string to_json(const ConfigValue& value, int indent) {
  try {
    return json_of(value).dump(indent);
  } catch (const Json::exception&) {
    raise<InvalidArgument>("a name of the model or its layers is not UTF-8 and cannot be written as JSON");
  }
}

}  // namespace rondo::keras
