// The options of a recurrent layer from its configuration. Internal to this folder.
#pragma once

#include <string_view>
#include <variant>

#include "models/layers/recurrent.h"

namespace rondo {

class ConfigView;

using RecurrentOptions = std::variant<layers::LSTM, layers::GRU>;

// Throws FileError for classes other than LSTM and GRU, and for what they cannot do.
RecurrentOptions recurrent_options_from(std::string_view class_name, const ConfigView& config);

}  // namespace rondo
