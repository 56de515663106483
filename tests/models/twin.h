// A graph built twice: of layers, and of float64 functions straight from the definitions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/graph/graph.h"
#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/merge.h"
#include "models/layers/normalization.h"
#include "models/layers/pooling.h"
#include "runtime/kernels/elementwise.h"
#include "tests/support/oracle.h"

namespace rondo::test {

// One evaluation in float64.
struct Evaluation {
  std::map<std::string, Array> weights;        // by parameter name
  std::map<std::string, Array> inputs;         // by layer name, with the batch
  std::map<std::string, Array> dropout_masks;  // factors, by layer name
  std::map<const void*, Array> done;           // results of functions so far
};

struct Twin {
  SymbolicTensor place;
  std::shared_ptr<std::function<Array(Evaluation&)>> function;

  Array value(Evaluation& evaluation) const {
    const auto found = evaluation.done.find(function.get());
    if (found != evaluation.done.end()) return found->second;
    return evaluation.done[function.get()] = (*function)(evaluation);
  }
};

inline Twin twin(SymbolicTensor place, std::function<Array(Evaluation&)> function) {
  return {std::move(place), std::make_shared<std::function<Array(Evaluation&)>>(std::move(function))};
}

inline Array reshaped(Array array, const Shape& shape) {
  array.shape = shape;
  return array;
}

inline Array activated(const Array& x, const std::string& name) {
  const ActivationKind kind = activation_by_name(name, "a test");
  return kind == ActivationKind::kSoftmax ? softmax(x) : activation(x, *elementwise(kind));
}

inline Twin input(const std::string& name, const Shape& shape) {
  return twin(layers::Input({.shape = shape, .name = name}),
              [name](Evaluation& e) { return e.inputs.at(name); });
}

// `layer` has a name and may be shared.
inline Twin apply(const layers::Dense& layer, const Twin& x) {
  return twin(layer(x.place), [name = layer.name, f = layer.activation, bias = layer.use_bias,
                               units = layer.units, x](Evaluation& e) {
    const Array in = x.value(e);
    const int64_t features = in.shape[in.shape.rank() - 1];
    const Array rows = reshaped(in, {in.size() / features, features});
    const Array y =
        dense(rows, e.weights.at(name + "/kernel"), bias ? e.weights.at(name + "/bias") : Array{});
    std::vector<int64_t> extents(in.shape.extents().begin(), in.shape.extents().end());
    extents.back() = units;
    return activated(reshaped(y, Shape(extents)), f);
  });
}

inline Window oracle_window(std::array<int64_t, 2> size, std::array<int64_t, 2> strides,
                            std::array<int64_t, 2> dilation, bool same, const Shape& image) {
  Window window{.size = size, .strides = strides, .dilation = dilation};
  for (size_t axis = 0; same && axis < 2; ++axis) {
    const int64_t n = image[static_cast<int>(axis) + 1];
    const int64_t out = (n + strides[axis] - 1) / strides[axis];
    const int64_t total =
        std::max<int64_t>((out - 1) * strides[axis] + (size[axis] - 1) * dilation[axis] + 1 - n, 0);
    window.padding[2 * axis] = total / 2;
    window.padding[2 * axis + 1] = total - total / 2;
  }
  return window;
}

inline Twin apply(const layers::Conv2D& layer, const Twin& x) {
  return twin(
      layer(x.place), [name = layer.name, f = layer.activation, bias = layer.use_bias,
                       size = layer.kernel_size, strides = layer.strides, groups = layer.groups,
                       dilation = layer.dilation_rate, same = layer.padding == "same", x](Evaluation& e) {
        const Array in = x.value(e);
        Window window = oracle_window(size, strides, dilation, same, in.shape);
        window.groups = groups;
        const Array y =
            conv2d(in, e.weights.at(name + "/kernel"), bias ? e.weights.at(name + "/bias") : Array{}, window);
        return activated(y, f);
      });
}

template <class Options>
Twin apply_pool(const Options& layer, Pooling pooling, const Twin& x) {
  const bool own = layer.strides == std::array<int64_t, 2>{0, 0};
  return twin(layer(x.place),
              [pooling, size = layer.pool_size, strides = own ? layer.pool_size : layer.strides,
               same = layer.padding == "same", x](Evaluation& e) {
                const Array in = x.value(e);
                return pool2d(in, pooling, oracle_window(size, strides, {1, 1}, same, in.shape));
              });
}
inline Twin apply(const layers::MaxPooling2D& layer, const Twin& x) {
  return apply_pool(layer, Pooling::kMax, x);
}
inline Twin apply(const layers::AveragePooling2D& layer, const Twin& x) {
  return apply_pool(layer, Pooling::kAverage, x);
}
inline Twin apply(const layers::GlobalAveragePooling2D& layer, const Twin& x) {
  return twin(layer(x.place), [x, keepdims = layer.keepdims](Evaluation& e) {
    const Array in = x.value(e);
    const std::array<int64_t, 2> all{in.shape[1], in.shape[2]};
    const Array y = pool2d(in, Pooling::kAverage, Window{.size = all, .strides = all});
    if (keepdims) return y;
    return reshaped(y, {in.shape[0], in.shape[3]});
  });
}
inline Twin apply(const layers::Flatten& layer, const Twin& x) {
  return twin(layer(x.place), [x](Evaluation& e) {
    const Array in = x.value(e);
    return reshaped(in, {in.shape[0], in.size() / in.shape[0]});
  });
}
inline Twin apply(const layers::Activation& layer, const Twin& x) {
  return twin(layer(x.place), [f = layer.activation, x](Evaluation& e) { return activated(x.value(e), f); });
}
inline Twin apply(const layers::Dropout& layer, const Twin& x) {
  return twin(layer(x.place), [name = layer.name, x](Evaluation& e) {
    Array y = x.value(e);
    const auto mask = e.dropout_masks.find(name);
    if (mask == e.dropout_masks.end()) return y;  // inference
    for (int64_t i = 0; i < y.size(); ++i) y[i] *= mask->second[i];
    return y;
  });
}
inline Twin apply(const layers::BatchNormalization& layer, const Twin& x) {
  return twin(layer(x.place), [name = layer.name, epsilon = static_cast<double>(layer.epsilon),
                               scale = layer.scale, center = layer.center, x](Evaluation& e) {
    const Array in = x.value(e);
    return batch_norm(in, batch_statistics(in), scale ? e.weights.at(name + "/gamma") : Array{},
                      center ? e.weights.at(name + "/beta") : Array{}, epsilon);
  });
}
inline Twin add(const std::vector<Twin>& terms) {
  std::vector<SymbolicTensor> places;
  for (const Twin& term : terms) places.push_back(term.place);
  return twin(layers::Add{}(places), [terms](Evaluation& e) {
    Array sum = terms[0].value(e);
    for (size_t t = 1; t < terms.size(); ++t) {
      const Array term = terms[t].value(e);
      for (int64_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
    }
    return sum;
  });
}
// Along the last axis.
inline Twin concatenate(const std::vector<Twin>& parts) {
  std::vector<SymbolicTensor> places;
  for (const Twin& part : parts) places.push_back(part.place);
  const SymbolicTensor place = layers::Concatenate{}(places);
  return twin(place, [parts, shape = place.shape()](Evaluation& e) {
    const Array first = parts[0].value(e);
    Array out(shape.batched(first.shape[0]));
    const int64_t width = shape[shape.rank() - 1];
    int64_t column = 0;
    for (const Twin& part : parts) {
      const Array in = part.value(e);
      const int64_t own = in.shape[in.shape.rank() - 1];
      for (int64_t i = 0; i < in.size(); ++i) out[i / own * width + column + i % own] = in[i];
      column += own;
    }
    return out;
  });
}

}  // namespace rondo::test
