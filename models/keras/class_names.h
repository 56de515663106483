// Names that Keras 3 gives by class and order.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rondo {
class Layer;
}

namespace rondo::keras {

// The version whose files ours are like.
inline constexpr const char* kKerasVersion = "2.15.0";

// "dense", "dense_1", ... for layers in their order.
class ClassNames {
 public:
  std::string next(std::string_view class_name);

 private:
  std::unordered_map<std::string, int> counts_;
};

// Where a layer's weights lie below its group, asked in their order: "vars/0", or "cell/vars/0" for weights
// of a layer inside it ("lstm_cell/kernel"). The first name is the one to write; Keras up to 3.4 writes
// others.
class VariablePlaces {
 public:
  explicit VariablePlaces(const Layer&) {}
  std::vector<std::string> next(std::string_view weight);

 private:
  std::unordered_map<std::string, int> counts_;
};

}  // namespace rondo::keras
