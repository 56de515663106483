// The calls of a layer in a functional model's configuration. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

class ConfigView;

// A tensor that a call reads: what the numbered call of a layer gave.
struct CallInput {
  std::string layer;
  int64_t node = 0;
  int64_t tensor = 0;
  std::string where;
};

// The names under which a layer of this class takes its second and further inputs; none: it takes a list.
std::span<const std::string_view> call_keywords(std::string_view class_name);

// One entry of inbound_nodes, in either dialect:
//   [["conv", 0, 0, {}], ...]
//   {"args": [{"class_name": "__keras_tensor__", "config": {..., "keras_history": ["conv", 0, 0]}}],
//    "kwargs": {}}
// Tensors among the arguments follow in the order of `keywords`. Throws FileError for arguments that would
// change what the call computes (a mask, training = true, an initial state).
std::vector<CallInput> read_call(const ConfigView& call, std::span<const std::string_view> keywords);

// input_layers or output_layers: [["x", 0, 0], ...], or ["x", 0, 0] alone as Keras 3 writes a single one.
std::vector<CallInput> read_ends(const ConfigView& ends);

}  // namespace rondo
