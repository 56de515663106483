#include "models/keras/weight_layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>

#include "models/graph/graph.h"
#include "models/keras/class_names.h"
#include "runtime/base/error.h"

namespace rondo::keras {
namespace {

// HDF5 takes 64 KiB of an attribute; Keras leaves room for its header.
constexpr size_t kMostListBytes = 64512;

std::string shape_text(const std::vector<int64_t>& extents) {
  std::string text;
  for (const int64_t extent : extents) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "(" + text + (extents.size() == 1 ? ",)" : ")");
}
std::vector<int64_t> extents_of(const Shape& shape) {
  return {shape.extents().begin(), shape.extents().end()};
}

StoredArray stored(const Weight& weight, std::vector<float> values) {
  return {.shape = extents_of(weight.shape), .values = std::move(values)};
}

// "dense/kernel:0" to "kernel".
std::string_view last_word(std::string_view name) {
  name = name.substr(0, name.rfind(':'));
  return name.substr(name.rfind('/') + 1);
}

// Where the weights of the graph begin that belong to each layer.
std::unordered_map<const Layer*, size_t> first_weights(const Graph& graph) {
  std::unordered_map<const Layer*, size_t> first;
  size_t next = 0;
  for (const auto& layer : graph.layers()) {
    first[layer.get()] = next;
    next += layer->weights().size();
  }
  return first;
}

struct FileWeight {
  std::string name;
  const StoredArray* array = nullptr;
};
struct FileLayer {
  std::string name;
  std::vector<FileWeight> weights;
};

// Copies one weight after all checks; `who` names the layer.
std::vector<float> take_weight(const FileWeight& from, const Weight& weight, const std::string& who) {
  const std::vector<int64_t> wanted = extents_of(weight.shape);
  if (from.array->shape != wanted) {
    raise<FileError>(
        "{}: weight \"{}\" has the shape {} in the file, and {} in the model, where it is \"{}\"", who,
        from.name, shape_text(from.array->shape), shape_text(wanted), weight.name);
  }
  const auto* values = std::get_if<std::vector<float>>(&from.array->values);
  if (values == nullptr) raise<FileError>("{}: weight \"{}\" has whole numbers in the file", who, from.name);
  return *values;
}

class LegacyReader {
 public:
  LegacyReader(const Group& group, const Graph& graph, std::string where)
      : graph_(graph), where_(std::move(where)) {
    if (const auto backend = group.attributes.find("backend"); backend != group.attributes.end()) {
      require_backend(backend->second);
    }
    for (const std::string& name : take_list(group, "layer_names", where_)) {
      FileLayer layer = read_layer(group, name);
      if (!layer.weights.empty()) layers_.push_back(std::move(layer));
    }
    values_.resize(graph.weights().size());
  }

  WeightValues by_order() {
    std::vector<const Layer*> mine;
    for (const auto& layer : graph_.layers()) {
      if (!layer->weights().empty()) mine.push_back(layer.get());
    }
    const bool nested =
        layers_.size() == 1 && mine.size() > 1 && layers_.front().weights.size() == graph_.weights().size();
    if (nested) {
      take_nested(layers_.front());
      return std::move(values_);
    }
    const size_t common = std::min(layers_.size(), mine.size());
    const bool same = layers_.size() == mine.size();
    for (size_t i = 0; i < common; ++i) {
      // Where layers are missing, the first one with other weights tells most.
      if (!same && layers_[i].weights.size() == mine[i]->weights().size()) continue;
      take_layer(layers_[i], *mine[i]);
    }
    if (!same) {
      raise<FileError>("{}: has {} layers with weights, the model has {}: {} \"{}\" has no counterpart",
                       where_, layers_.size(), mine.size(),
                       layers_.size() > common ? "the file's" : "the model's",
                       layers_.size() > common ? layers_[common].name : mine[common]->name());
    }
    return std::move(values_);
  }

  WeightValues by_name() {
    std::unordered_map<std::string, const Layer*> known;
    for (const auto& layer : graph_.layers()) known[layer->name()] = layer.get();
    bool any = false;
    for (const FileLayer& layer : layers_) {
      const auto found = known.find(layer.name);
      if (found == known.end()) continue;
      take_layer(layer, *found->second);
      any = true;
    }
    if (!any) raise<FileError>("{}: no layer with weights has the name of a layer of the model", where_);
    return std::move(values_);
  }

 private:
  void require_backend(const StoredText& backend) const {
    if (backend.values != std::vector<std::string>{"theano"}) return;
    raise<FileError>("{}: was saved by Keras on Theano, whose kernels are flipped; not supported", where_);
  }

  FileLayer read_layer(const Group& group, const std::string& name) const {
    const std::string where = fmt::format("{}/{}", where_, name);
    const Group* inner = group.find_group(name);
    if (inner == nullptr) raise<FileError>("{}: is missing, but listed in layer_names", where);
    FileLayer layer{.name = name, .weights = {}};
    for (const std::string& weight : take_list(*inner, "weight_names", where)) {
      const StoredArray* array = inner->find_array(weight);
      if (array == nullptr) raise<FileError>("{}/{}: is missing, but listed in weight_names", where, weight);
      layer.weights.push_back({weight, array});
    }
    return layer;
  }

  void take_layer(const FileLayer& from, const Layer& layer) {
    const std::string who = fmt::format("{}: layer \"{}\"", where_, from.name);
    if (from.weights.size() != layer.weights().size()) {
      raise<FileError>("{}: has {} weights in the file; its counterpart, the {}, has {}", who,
                       from.weights.size(), layer.title(), layer.weights().size());
    }
    size_t next = first_.at(&layer);
    for (size_t i = 0; i < from.weights.size(); ++i) {
      values_[next++] = take_weight(from.weights[i], *layer.weights()[i], who);
    }
  }

  // All weights in one layer: those that are trained come first, then the others, or layer by layer.
  void take_nested(const FileLayer& from) {
    const std::vector<Weight*>& weights = graph_.weights();
    std::vector<size_t> as_is(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) as_is[i] = i;
    std::vector<size_t> parted = as_is;
    std::stable_partition(parted.begin(), parted.end(), [&](size_t i) { return weights[i]->trainable; });
    const auto fits = [&](const std::vector<size_t>& order) {
      for (size_t i = 0; i < order.size(); ++i) {
        const Weight& weight = *weights[order[i]];
        if (last_word(from.weights[i].name) != last_word(weight.name)) return false;
        if (from.weights[i].array->shape != extents_of(weight.shape)) return false;
      }
      return true;
    };
    const std::vector<size_t>& order = !fits(parted) && fits(as_is) ? as_is : parted;
    const std::string who = fmt::format("{}: layer \"{}\", which holds all weights", where_, from.name);
    for (size_t i = 0; i < order.size(); ++i) {
      const Weight& weight = *weights[order[i]];
      if (last_word(from.weights[i].name) != last_word(weight.name)) {
        raise<FileError>("{}: weight {} is \"{}\"; the model's is \"{}\"", who, i, from.weights[i].name,
                         weight.parameter.name);
      }
      values_[order[i]] = take_weight(from.weights[i], weight, who);
    }
  }

  const Graph& graph_;
  std::string where_;
  std::vector<FileLayer> layers_;
  std::unordered_map<const Layer*, size_t> first_ = first_weights(graph_);
  WeightValues values_;
};

WeightValues take_keras3(const Group& layers, const Graph& graph, const std::string& where) {
  WeightValues values;
  ClassNames names;
  for (const auto& layer : graph.layers()) {
    const std::string path = names.next(layer->class_name());
    VariablePlaces places(*layer);
    for (const auto& weight : layer->weights()) {
      const auto place = places.next(weight->name);
      const StoredArray* array = nullptr;
      std::string at;
      for (const std::string& variant : place) {
        at = path + "/" + variant;
        array = layers.find_array(at);
        if (array != nullptr) break;
      }
      const std::string who = fmt::format("{}/{}", where, path);
      if (array == nullptr) {
        raise<FileError>("{}/{}: is missing; the {} needs it for its weight \"{}\"", where,
                         path + "/" + place.front(), layer->title(), weight->name);
      }
      values.push_back(take_weight({at, array}, *weight, who));
    }
    if (const std::string more = path + "/" + places.next("").front(); layers.find_array(more) != nullptr) {
      raise<FileError>("{}/{}: is one weight more than the {} has", where, more, layer->title());
    }
  }
  return values;
}

}  // namespace

void put_weights(Group& group, const Graph& graph, WeightValues values) {
  RONDO_CHECK(values.size() == graph.weights().size());
  std::vector<std::string> layer_names;
  size_t next = 0;
  for (const auto& layer : graph.layers()) {
    layer_names.push_back(layer->name());
    Group& inner = group.make_group(layer->name());
    std::vector<std::string> names;
    for (const auto& weight : layer->weights()) {
      names.push_back(fmt::format("{}/{}:0", layer->name(), weight->name));
      inner.put_array(names.back(), stored(*weight, std::move(values[next++])));
    }
    put_list(inner, "weight_names", names);
  }
  put_list(group, "layer_names", layer_names);
  group.attributes["backend"] = {.is_list = false, .values = {"tensorflow"}};
  group.attributes["keras_version"] = {.is_list = false, .values = {kKerasVersion}};
}

void put_weights_keras3(Group& group, const Graph& graph, WeightValues values) {
  RONDO_CHECK(values.size() == graph.weights().size());
  ClassNames names;
  Group& layers = group.make_group("layers");
  group.make_group("vars");  // of the model itself
  size_t next = 0;
  for (const auto& layer : graph.layers()) {
    const std::string path = names.next(layer->class_name());
    layers.make_group(path + "/vars");
    VariablePlaces places(*layer);
    for (const auto& weight : layer->weights()) {
      layers.put_array(path + "/" + places.next(weight->name).front(),
                       stored(*weight, std::move(values[next++])));
    }
  }
}

WeightValues take_weights(const Group& root, const Graph& graph, const std::string& where, Match match) {
  const auto legacy = [](const Group& group) {
    return group.attributes.contains("layer_names") || group.attributes.contains("layer_names0");
  };
  const Group* inner = legacy(root) ? &root : root.find_group("model_weights");
  if (inner != nullptr && legacy(*inner)) {
    LegacyReader reader(*inner, graph, inner == &root ? where : where + ": /model_weights");
    return match == Match::kName ? reader.by_name() : reader.by_order();
  }
  for (const char* name : {"layers", "_layer_checkpoint_dependencies"}) {
    const Group* layers = root.find_group(name);
    if (layers == nullptr) continue;
    if (match == Match::kName) {
      raise<FileError>("{}: knows no names of layers; its weights can be loaded by order", where);
    }
    return take_keras3(*layers, graph, fmt::format("{}: /{}", where, name));
  }
  raise<FileError>("{}: holds no weights of a Keras model: there is neither layer_names nor /layers", where);
}

void put_list(Group& group, const std::string& name, const std::vector<std::string>& list) {
  size_t width = 1;
  for (const std::string& text : list) width = std::max(width, text.size());
  require(width <= kMostListBytes, "a name of {} bytes is too long for an HDF5 file", width);
  const size_t piece = kMostListBytes / width;
  if (list.size() <= piece) {
    group.attributes[name] = {.is_list = true, .values = list};
    return;
  }
  for (size_t i = 0; i * piece < list.size(); ++i) {
    const auto begin = list.begin() + static_cast<ptrdiff_t>(i * piece);
    const auto end = list.begin() + static_cast<ptrdiff_t>(std::min((i + 1) * piece, list.size()));
    group.attributes[name + std::to_string(i)] = {.is_list = true, .values = {begin, end}};
  }
}

std::vector<std::string> take_list(const Group& group, const std::string& name, const std::string& where) {
  if (const auto found = group.attributes.find(name); found != group.attributes.end()) {
    return found->second.values;
  }
  std::vector<std::string> list;
  for (size_t i = 0;; ++i) {
    const auto found = group.attributes.find(name + std::to_string(i));
    if (found == group.attributes.end()) break;
    list.insert(list.end(), found->second.values.begin(), found->second.values.end());
  }
  if (list.empty()) raise<FileError>("{}: has no attribute {}", where, name);
  return list;
}

}  // namespace rondo::keras
