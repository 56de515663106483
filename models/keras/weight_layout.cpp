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

// A layer's weights with the names that Keras gives them: "dense/kernel".
struct NamedWeight {
  std::string name;
  const Weight* weight = nullptr;
};

void add_weights(const Layer& layer, const std::string& above, std::vector<NamedWeight>& weights) {
  if (const Graph* inner = layer.nested()) {
    for (const auto& each : inner->layers()) add_weights(*each, above + layer.name() + "/", weights);
    return;
  }
  for (const auto& weight : layer.weights()) {
    std::string name = layer.name() + "/" + weight->name;
    const auto same = [&](const NamedWeight& other) { return other.name == name; };
    if (std::any_of(weights.begin(), weights.end(), same)) name = above + name;
    weights.push_back({std::move(name), weight.get()});
  }
}

// Keras lists what is trained first. In a layer of its own the weights have that order from the start.
void part(std::vector<NamedWeight>& weights) {
  std::stable_partition(weights.begin(), weights.end(),
                        [](const NamedWeight& weight) { return weight.weight->parameter.trainable; });
}

std::vector<NamedWeight> weights_of(const Layer& layer) {
  std::vector<NamedWeight> weights;
  add_weights(layer, "", weights);
  if (layer.nested() != nullptr) part(weights);
  return weights;
}

// The place of each weight among those of the graph.
std::unordered_map<const Weight*, size_t> places_of(const Graph& graph) {
  std::unordered_map<const Weight*, size_t> places;
  for (const Weight* weight : graph.weights()) places.emplace(weight, places.size());
  return places;
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
      if (!weights_of(*layer).empty()) mine.push_back(layer.get());
    }
    const bool nested =
        layers_.size() == 1 && mine.size() > 1 && layers_.front().weights.size() == graph_.weights().size();
    if (nested) {
      std::vector<NamedWeight> in_layers;
      for (const Layer* layer : mine) add_weights(*layer, "", in_layers);
      std::vector<NamedWeight> parted = in_layers;
      part(parted);
      take_nested(layers_.front(), parted, in_layers,
                  fmt::format("{}: layer \"{}\", which holds all weights", where_, layers_.front().name));
      return std::move(values_);
    }
    const size_t common = std::min(layers_.size(), mine.size());
    const bool same = layers_.size() == mine.size();
    for (size_t i = 0; i < common; ++i) {
      // Where layers are missing, the first one with other weights tells most.
      if (!same && layers_[i].weights.size() == weights_of(*mine[i]).size()) continue;
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
    const std::vector<NamedWeight> mine = weights_of(layer);
    if (from.weights.size() != mine.size()) {
      raise<FileError>("{}: has {} weights in the file; its counterpart, the {}, has {}", who,
                       from.weights.size(), layer.title(), mine.size());
    }
    if (layer.nested() != nullptr) {
      std::vector<NamedWeight> in_layers;
      add_weights(layer, "", in_layers);
      take_nested(from, mine, in_layers, who);
    } else {
      take_list_of(from, mine, who);
    }
  }

  void take_list_of(const FileLayer& from, const std::vector<NamedWeight>& mine, const std::string& who) {
    for (size_t i = 0; i < mine.size(); ++i) {
      values_[places_.at(mine[i].weight)] = take_weight(from.weights[i], *mine[i].weight, who);
    }
  }

  // Many layers' weights in one: those that are trained come first, then the others; or layer by layer.
  // Shapes alone do not tell a mean from a variance, so names must agree, too.
  void take_nested(const FileLayer& from, const std::vector<NamedWeight>& parted,
                   const std::vector<NamedWeight>& in_layers, const std::string& who) {
    const auto stray = [&](const std::vector<NamedWeight>& order) {
      for (size_t i = 0; i < order.size(); ++i) {
        if (last_word(from.weights[i].name) != last_word(order[i].name)) return i;
      }
      return order.size();
    };
    if (const size_t i = stray(parted); i == parted.size()) {
      take_list_of(from, parted, who);
    } else if (stray(in_layers) == in_layers.size()) {
      take_list_of(from, in_layers, who);
    } else {
      raise<FileError>("{}: weight {} is \"{}\"; the model's is \"{}\"", who, i, from.weights[i].name,
                       parted[i].name);
    }
  }

  const Graph& graph_;
  std::string where_;
  std::vector<FileLayer> layers_;
  std::unordered_map<const Weight*, size_t> places_ = places_of(graph_);
  WeightValues values_;
};

// visit(path, variants, layer, weight) for the weights of all layers in the layout of Keras 3: `path` is the
// layer's group, `variants` what the array may be called in it; and finish(path, next, layer) for each layer.
template <class Visit, class Finish>
void walk_keras3(const std::string& above, const Graph& graph, KerasDialect dialect, const Visit& visit,
                 const Finish& finish) {
  ClassNames names;
  for (const auto& layer : graph.layers()) {
    const std::string path = above + names.next(layer->class_name());
    if (const Graph* inner = layer->nested()) {
      walk_keras3(path + "/layers/", *inner, dialect, visit, finish);
      continue;
    }
    VariablePlaces places(*layer, dialect);
    for (const auto& weight : layer->weights()) visit(path, places.next(weight->name), *layer, *weight);
    finish(path, places.next("").front(), *layer);
  }
}

WeightValues take_keras3(const Group& layers, const Graph& graph, const std::string& where) {
  WeightValues values(graph.weights().size());
  const auto places = places_of(graph);
  const auto visit = [&](const std::string& path, const std::vector<std::string>& variants,
                         const Layer& layer, const Weight& weight) {
    for (const std::string& variant : variants) {
      const std::string at = path + "/" + variant;
      const StoredArray* array = layers.find_array(at);
      if (array == nullptr) continue;
      values[places.at(&weight)] = take_weight({at, array}, weight, fmt::format("{}/{}", where, path));
      return;
    }
    raise<FileError>("{}/{}/{}: is missing; the {} needs it for its weight \"{}\"", where, path,
                     variants.front(), layer.title(), weight.name);
  };
  walk_keras3("", graph, KerasDialect::kKeras3, visit,
              [&](const std::string& path, const std::string& next, const Layer& layer) {
                if (layers.find_array(path + "/" + next) == nullptr) return;
                raise<FileError>("{}/{}/{}: is one weight more than the {} has", where, path, next,
                                 layer.title());
              });
  return values;
}

}  // namespace

void put_weights(Group& group, const Graph& graph, WeightValues values, KerasDialect dialect) {
  RONDO_CHECK(values.size() == graph.weights().size());
  std::vector<std::string> layer_names;
  const auto places = places_of(graph);
  for (const auto& layer : graph.layers()) {
    layer_names.push_back(layer->name());
    Group& inner = group.make_group(layer->name());
    std::vector<std::string> names;
    for (const auto& [name, weight] : weights_of(*layer)) {
      names.push_back(name + ":0");
      inner.put_array(names.back(), stored(*weight, std::move(values[places.at(weight)])));
    }
    put_list(inner, "weight_names", names);
  }
  put_list(group, "layer_names", layer_names);
  group.attributes["backend"] = {.is_list = false, .values = {"tensorflow"}};
  group.attributes["keras_version"] = {.is_list = false, .values = {keras_version(dialect)}};
}

void put_weights_keras3(Group& group, const Graph& graph, WeightValues values, KerasDialect dialect) {
  RONDO_CHECK(values.size() == graph.weights().size());
  Group& layers = group.make_group("layers");
  group.make_group("vars");  // of the model itself
  const auto places = places_of(graph);
  walk_keras3(
      "", graph, dialect,
      [&](const std::string& path, const std::vector<std::string>& variants, const Layer&,
          const Weight& weight) {
        layers.put_array(path + "/" + variants.front(),
                         stored(weight, std::move(values[places.at(&weight)])));
      },
      [&](const std::string& path, const std::string&, const Layer&) { layers.make_group(path + "/vars"); });
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
