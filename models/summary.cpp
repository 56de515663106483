#include "models/summary.h"

#include <fmt/format.h>

#include <vector>

#include "models/graph/graph.h"

namespace rondo {
namespace {

// Ends of the columns, as in tf.keras 2.10.
struct Table {
  std::vector<size_t> ends;

  size_t width() const { return ends.back(); }
  std::string row(const std::vector<std::string>& fields) const {
    std::string line;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (i > 0) line.back() = ' ';
      line += fields[i];
      line.resize(ends[i], ' ');
    }
    return line + '\n';
  }
  std::string rule(char mark) const { return std::string(width(), mark) + '\n'; }
};

std::string batch_shape(const Shape& sample) {
  std::string text = "(None";
  for (const int64_t extent : sample.extents()) text += fmt::format(", {}", extent);
  return text + (sample.rank() == 0 ? ",)" : ")");
}

std::string thousands(int64_t count) {
  return count < 1000 ? fmt::format("{}", count)
                      : fmt::format("{},{:03}", thousands(count / 1000), count % 1000);
}

// "name[call][0]" for every tensor the layer reads, where `call` counts the calls of the layer that made it.
std::vector<std::string> connections(const Graph& graph, const Layer& layer) {
  std::vector<std::string> out;
  for (const auto& node : graph.nodes()) {
    if (node->layer.get() != &layer) continue;
    for (const SymbolicTensor& input : node->inputs) {
      int call = 0;
      for (const auto& other : graph.nodes()) {
        if (other == input.node()) break;
        if (other->layer == input.node()->layer) ++call;
      }
      out.push_back(fmt::format("'{}[{}][0]'", input.node()->layer->name(), call));
    }
  }
  return out;
}

// A layer called several times has several outputs; Keras shows one where they are alike, else "multiple".
std::string output_text(const Graph& graph, const Layer& layer) {
  std::string text;
  for (const auto& node : graph.nodes()) {
    if (node->layer.get() != &layer) continue;
    const std::string shape = batch_shape(node->output);
    if (!text.empty() && text != shape) return "multiple";
    text = shape;
  }
  return text;
}

bool is_chain(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    if (node->inputs.size() > 1 || graph.consumers(*node).size() > 1) return false;
  }
  return graph.nodes().size() == graph.layers().size() && graph.outputs().size() == 1;
}

std::string layer_rows(const Table& table, const Graph& graph, const Layer& layer, bool connected) {
  std::vector<std::string> fields{fmt::format(" {} ({})", layer.name(), layer.class_name()),
                                  output_text(graph, layer), std::to_string(layer.count_params())};
  if (!connected) return table.row(fields);
  const std::vector<std::string> from = connections(graph, layer);
  if (from.empty()) {
    fields.emplace_back("[]");
    return table.row(fields);
  }
  std::string rows;
  for (size_t i = 0; i < from.size(); ++i) {
    fields.push_back((i == 0 ? "[" : " ") + from[i] + (i + 1 == from.size() ? "]" : ","));
    rows += table.row(fields);
    fields.assign(3, "");
  }
  return rows;
}

}  // namespace

std::string summarize(const Graph& graph, const std::string& name, bool sequential) {
  const bool connected = !sequential && !is_chain(graph);
  const Table table{connected ? std::vector<size_t>{32, 53, 65, 98} : std::vector<size_t>{29, 55, 65}};
  std::vector<std::string> titles{" Layer (type)", "Output Shape", "Param #"};
  if (connected) titles.emplace_back("Connected to");
  std::string out = fmt::format("Model: \"{}\"\n", name);
  out += table.rule('_') + table.row(titles) + table.rule('=');
  for (const auto& layer : graph.layers()) {
    if (sequential && layer->class_name() == "InputLayer") continue;
    out += layer_rows(table, graph, *layer, connected);
    out += table.row(std::vector<std::string>(titles.size()));
  }
  const int64_t total = graph.count_params();
  const int64_t trainable = graph.count_params(true);
  out += table.rule('=');
  out += fmt::format("Total params: {}\nTrainable params: {}\nNon-trainable params: {}\n", thousands(total),
                     thousands(trainable), thousands(total - trainable));
  out += table.rule('_');
  if (const int64_t products = graph.multiply_adds(); products > 0) {
    out += fmt::format("One sample, forward: {} multiply-adds, {:.4g} GFLOPs\n", thousands(products),
                       2e-9 * static_cast<double>(products));
  }
  return out;
}

}  // namespace rondo
