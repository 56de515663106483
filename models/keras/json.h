// JSON texts to configurations and back.
#pragma once

#include <string>
#include <string_view>

#include "models/graph/config.h"

namespace rondo::keras {

// Throws FileError that begins with `where` for what is not JSON, is larger than 16 MiB, nested deeper than
// 100 levels, has more than 512 keys in an object, or the same key twice.
ConfigValue parse_json(std::string_view text, const std::string& where);

// In one line, or with `indent` blanks a level. Throws InvalidArgument for text that is not UTF-8.
std::string to_json(const ConfigValue& value, int indent = -1);

}  // namespace rondo::keras
