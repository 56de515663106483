// Float64 definitions of the layers beyond those of twin.h.
#pragma once

#include "models/layers/advanced_activations.h"
#include "models/layers/join.h"
#include "models/layers/padding.h"
#include "models/layers/separable.h"
#include "models/layers/shape.h"
#include "tests/models/twin.h"

namespace rondo::test {

// (kh, kw, channels, multiplier) as the kernel of a convolution in `channels` groups.
inline Array depthwise(const Array& x, const Array& kernel, const Array& bias, Window window) {
  const Shape& s = kernel.shape;
  window.groups = s[2];
  return conv2d(x, reshaped(kernel, {s[0], s[1], 1, s[2] * s[3]}), bias, window);
}

inline Twin apply(const layers::DepthwiseConv2D& layer, const Twin& x) {
  return twin(layer(x.place),
              [name = layer.name, f = layer.activation, bias = layer.use_bias, size = layer.kernel_size,
               strides = layer.strides, dilation = layer.dilation_rate, same = layer.padding == "same",
               x](Evaluation& e) {
                const Array in = x.value(e);
                const Array y = depthwise(in, e.weights.at(name + "/depthwise_kernel"),
                                          bias ? e.weights.at(name + "/bias") : Array{},
                                          oracle_window(size, strides, dilation, same, in.shape));
                return activated(y, f);
              });
}

inline Twin apply(const layers::SeparableConv2D& layer, const Twin& x) {
  return twin(layer(x.place),
              [name = layer.name, f = layer.activation, bias = layer.use_bias, size = layer.kernel_size,
               strides = layer.strides, dilation = layer.dilation_rate, same = layer.padding == "same",
               x](Evaluation& e) {
                const Array in = x.value(e);
                const Array middle = depthwise(in, e.weights.at(name + "/depthwise_kernel"), Array{},
                                               oracle_window(size, strides, dilation, same, in.shape));
                const Array y = conv2d(middle, e.weights.at(name + "/pointwise_kernel"),
                                       bias ? e.weights.at(name + "/bias") : Array{}, Window{});
                return activated(y, f);
              });
}

inline Twin apply(const layers::ZeroPadding2D& layer, const Twin& x) {
  return twin(layer(x.place), [p = layer.padding, x](Evaluation& e) {
    const Array in = x.value(e);
    const Shape& s = in.shape;
    Array y(Shape{s[0], s[1] + p[0][0] + p[0][1], s[2] + p[1][0] + p[1][1], s[3]});
    for (int64_t i = 0; i < in.size(); ++i) {
      const int64_t c = i % s[3], w = i / s[3] % s[2], line = i / s[3] / s[2];
      const int64_t row = line / s[1] * y.shape[1] + line % s[1] + p[0][0];
      y[(row * y.shape[2] + w + p[1][0]) * s[3] + c] = in[i];
    }
    return y;
  });
}

inline Twin apply(const layers::GlobalMaxPooling2D& layer, const Twin& x) {
  return twin(layer(x.place), [x](Evaluation& e) {
    const Array in = x.value(e);
    const std::array<int64_t, 2> all{in.shape[1], in.shape[2]};
    return reshaped(pool2d(in, Pooling::kMax, Window{.size = all, .strides = all}),
                    {in.shape[0], in.shape[3]});
  });
}

inline Twin of_function(SymbolicTensor place, const ActivationFunction& f, const Twin& x) {
  return twin(std::move(place), [f, x](Evaluation& e) { return activation(x.value(e), f); });
}
inline Twin apply(const layers::ReLU& layer, const Twin& x) {
  return of_function(layer(x.place),
                     ActivationFunction::clipped_relu(layer.max_value.value_or(HUGE_VALF),
                                                      layer.negative_slope, layer.threshold),
                     x);
}
inline Twin apply(const layers::LeakyReLU& layer, const Twin& x) {
  return of_function(layer(x.place), ActivationFunction::clipped_relu(HUGE_VALF, layer.alpha, 0.0f), x);
}
inline Twin apply(const layers::ELU& layer, const Twin& x) {
  return of_function(layer(x.place), ActivationFunction::elu(layer.alpha), x);
}
inline Twin apply(const layers::Softmax& layer, const Twin& x) {
  return twin(layer(x.place), [x](Evaluation& e) { return softmax(x.value(e)); });
}

inline Twin apply(const layers::Reshape& layer, const Twin& x) {
  const SymbolicTensor place = layer(x.place);
  return twin(place, [shape = place.shape(), x](Evaluation& e) {
    const Array in = x.value(e);
    return reshaped(in, shape.batched(in.shape[0]));
  });
}
inline Twin apply(const layers::Permute& layer, const Twin& x) {
  const SymbolicTensor place = layer(x.place);
  return twin(place, [dims = layer.dims, x](Evaluation& e) {
    const Array in = x.value(e);
    const int rank = in.shape.rank();
    std::vector<int64_t> strides(static_cast<size_t>(rank), 1), extents{in.shape[0]}, steps;
    for (int a = rank - 1; a-- > 0;) {
      strides[static_cast<size_t>(a)] = strides[static_cast<size_t>(a) + 1] * in.shape[a + 1];
    }
    steps.push_back(strides[0]);
    for (const int64_t axis : dims) {
      extents.push_back(in.shape[static_cast<int>(axis)]);
      steps.push_back(strides[static_cast<size_t>(axis)]);
    }
    Array y{Shape(extents)};
    for (int64_t i = 0; i < y.size(); ++i) {
      int64_t rest = i, at = 0;
      for (size_t a = steps.size(); a-- > 0;) {
        at += rest % extents[a] * steps[a];
        rest /= extents[a];
      }
      y[i] = in[at];
    }
    return y;
  });
}

// `join` folds the parts from the left.
template <class Options>
Twin joined(const Options& layer, const std::vector<Twin>& parts,
            const std::function<double(double, double)>& join, double scale = 1.0) {
  std::vector<SymbolicTensor> places;
  for (const Twin& part : parts) places.push_back(part.place);
  return twin(layer(places), [parts, join, scale](Evaluation& e) {
    Array out = parts[0].value(e);
    for (size_t k = 1; k < parts.size(); ++k) {
      const Array next = parts[k].value(e);
      for (int64_t i = 0; i < out.size(); ++i) out[i] = join(out[i], next[i]);
    }
    for (double& value : out.values) value *= scale;
    return out;
  });
}

}  // namespace rondo::test
