// Names that Keras 3 gives by class and order.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/keras/dialect.h"

namespace rondo {
class Layer;
}

namespace rondo::keras {

// The version whose files ours are like.
constexpr const char* keras_version(KerasDialect dialect) {
  return dialect == KerasDialect::kKeras3 ? "3.5.0" : "2.15.0";
}

// "dense", "dense_1", ... for layers in their order.
class ClassNames {
 public:
  std::string next(std::string_view class_name);

 private:
  std::unordered_map<std::string, int> counts_;
};

// Where a layer's weights lie below its group, asked in their order: "vars/0", or "cell/vars/0" for weights
// of a layer inside it ("lstm_cell/kernel"). The first name is the one to write.
class VariablePlaces {
 public:
  VariablePlaces(const Layer&, KerasDialect dialect) : dialect_(dialect) {}
  std::vector<std::string> next(std::string_view weight);

 private:
  KerasDialect dialect_;
  std::unordered_map<std::string, int> counts_;
};

}  // namespace rondo::keras
