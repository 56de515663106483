#include "models/layers/call_list.h"

#include <array>
#include <map>

#include "models/graph/config.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

constexpr std::array<std::string_view, 2> kAttention{"value", "key"};

bool is_reference(const ConfigView& view) {
  const ConfigList* list = view.value().as<ConfigList>();
  return list != nullptr && list->size() >= 3 && (*list)[0].as<std::string>() != nullptr &&
         (*list)[1].as<int64_t>() != nullptr && (*list)[2].as<int64_t>() != nullptr;
}

CallInput read_reference(const ConfigView& view) {
  if (!is_reference(view)) view.fail("[layer, number of the call, number of the output]");
  const auto parts = view.list();
  return {parts[0].string(), parts[1].integer(), parts[2].integer(), view.where()};
}

bool is_keras_tensor(const ConfigView& view) {
  if (!view.is_config()) return false;
  const auto name = view.find("class_name");
  return name && name->is_string() && name->string() == "__keras_tensor__";
}

CallInput read_keras_tensor(const ConfigView& view) {
  return read_reference(view["config"]["keras_history"]);
}

using Named = std::map<std::string, CallInput, std::less<>>;

// Settings of a call. Tensors are collected by name; the others must leave the computation as it is.
void read_arguments(const ConfigView& arguments, Named& named) {
  const Config* config = arguments.value().as<Config>();
  if (config == nullptr) arguments.fail("an object");
  for (const ConfigEntry& entry : config->entries()) {
    const ConfigView value(entry.value, arguments.where() + "." + entry.key);
    if (is_keras_tensor(value)) {
      named.emplace(entry.key, read_keras_tensor(value));
    } else if (is_reference(value)) {
      named.emplace(entry.key, read_reference(value));
    } else if (!value.is_null() && !(value.value().as<bool>() != nullptr && !value.boolean())) {
      raise<FileError>("{}: calls with this argument are not supported", value.where());
    }
  }
}

void append_named(const ConfigView& call, std::span<const std::string_view> keywords, Named named,
                  std::vector<CallInput>& inputs) {
  for (const std::string_view keyword : keywords) {
    const auto found = named.find(keyword);
    if (found == named.end()) continue;
    inputs.push_back(std::move(found->second));
    named.erase(found);
  }
  if (named.empty()) return;
  raise<FileError>("{}: tensors as argument \"{}\" are not supported", call.where(), named.begin()->first);
}

void read_list_call(const ConfigView& call, std::vector<CallInput>& inputs, Named& named) {
  // A single input may stand without the list around it.
  const auto entries = is_reference(call) ? std::vector<ConfigView>{call} : call.list();
  for (const ConfigView& entry : entries) {
    inputs.push_back(read_reference(entry));
    const auto parts = entry.list();
    if (parts.size() > 4) entry.fail("[layer, call, output, arguments]");
    if (parts.size() == 4) read_arguments(parts[3], named);
  }
}

void read_args(const ConfigView& args, std::vector<CallInput>& inputs, int depth = 0) {
  for (const ConfigView& argument : args.list()) {
    if (is_keras_tensor(argument)) {
      inputs.push_back(read_keras_tensor(argument));
    } else if (argument.is_list() && depth == 0) {
      read_args(argument, inputs, 1);
    } else {
      argument.fail("a tensor or a list of tensors");
    }
  }
}

}  // namespace

std::span<const std::string_view> call_keywords(std::string_view class_name) {
  if (class_name == "MultiHeadAttention") return kAttention;
  return {};
}

std::vector<CallInput> read_call(const ConfigView& call, std::span<const std::string_view> keywords) {
  std::vector<CallInput> inputs;
  Named named;
  if (call.is_list()) {
    read_list_call(call, inputs, named);
  } else {
    read_args(call["args"], inputs);
    if (const auto arguments = call.find("kwargs")) read_arguments(*arguments, named);
  }
  append_named(call, keywords, std::move(named), inputs);
  return inputs;
}

std::vector<CallInput> read_ends(const ConfigView& ends) {
  std::vector<CallInput> inputs;
  if (is_reference(ends)) return {read_reference(ends)};
  for (const ConfigView& end : ends.list()) inputs.push_back(read_reference(end));
  return inputs;
}

}  // namespace rondo
