#pragma once

#include <string>

namespace rondo {

class Graph;

// Keras' table of a model: layer and type, output shape, parameters, for graphs that are no chain what each
// layer is connected to, and the totals.
std::string summarize(const Graph& graph, const std::string& name, bool sequential);

}  // namespace rondo
