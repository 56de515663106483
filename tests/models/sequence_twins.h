// Float64 definitions of recurrent layers.
#pragma once

#include <optional>

#include "models/layers/recurrent.h"
#include "tests/models/twin.h"

namespace rondo::test {

inline double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
inline int64_t last(const Array& x) {
  return x.shape[x.shape.rank() - 1];
}

// How a recurrent layer walks, and what it leaves out. Empty: nothing.
struct Walk {
  Array mask;    // (rows, time)
  Array inputs;  // (rows, features): factors of dropout
  Array states;  // (rows, units)
  bool backwards = false;
  Walk(Evaluation& e, const std::string& name, const Twin* of, bool back) : backwards(back) {
    if (of != nullptr) mask = of->value(e);
    const auto& factors = e.dropout_masks;
    if (const auto found = factors.find(name + "/inputs"); found != factors.end()) inputs = found->second;
    if (const auto found = factors.find(name + "/states"); found != factors.end()) states = found->second;
  }
};

// (rows, time, features) to all states (rows, time, units) or the last. `step` gets the products of the
// input, h and c, and h with dropout.
template <class Step>
Array unrolled(const Array& x, const Array& kernel, const Array& bias, int64_t units, int64_t gates,
               bool sequences, const Walk& walk, const Step& step) {
  const int64_t rows = x.shape[0], time = x.shape[1], features = x.shape[2], columns = gates * units;
  Array states({rows, time, units});
  for (int64_t n = 0; n < rows; ++n) {
    std::vector<double> h(static_cast<size_t>(units)), c(static_cast<size_t>(units));
    for (int64_t t = 0; t < time; ++t) {
      const int64_t at = walk.backwards ? time - 1 - t : t;
      std::vector<double> z(static_cast<size_t>(columns)), dropped = h;
      for (int64_t j = 0; j < columns; ++j) {
        double sum = bias.size() > 0 ? bias[j] : 0.0;
        for (int64_t f = 0; f < features; ++f) {
          const double factor = walk.inputs.size() > 0 ? walk.inputs[n * features + f] : 1.0;
          sum += factor * x[(n * time + at) * features + f] * kernel[f * columns + j];
        }
        z[static_cast<size_t>(j)] = sum;
      }
      for (int64_t k = 0; k < units && walk.states.size() > 0; ++k) {
        dropped[static_cast<size_t>(k)] *= walk.states[n * units + k];
      }
      if (walk.mask.size() == 0 || walk.mask[n * time + at] > 0.0) step(z, h, c, dropped);
      for (int64_t k = 0; k < units; ++k) states[(n * time + t) * units + k] = h[static_cast<size_t>(k)];
    }
  }
  if (sequences) return states;
  Array out({rows, units});
  for (int64_t i = 0; i < out.size(); ++i) {
    out[i] = states[(i / units * time + time - 1) * units + i % units];
  }
  return out;
}

inline std::vector<double> times(const std::vector<double>& h, const Array& recurrent, const double* bias) {
  const int64_t columns = recurrent.shape[1];
  std::vector<double> out(static_cast<size_t>(columns));
  for (int64_t j = 0; j < columns; ++j) {
    double sum = bias != nullptr ? bias[j] : 0.0;
    for (size_t k = 0; k < h.size(); ++k) sum += h[k] * recurrent[static_cast<int64_t>(k) * columns + j];
    out[static_cast<size_t>(j)] = sum;
  }
  return out;
}

// `mask`: of x, where it has one.
inline Twin apply(const layers::LSTM& layer, const Twin& x, const std::optional<Twin>& mask = {}) {
  return twin(layer(x.place), [layer = layer.name, u = layer.units, bias = layer.use_bias,
                               sequences = layer.return_sequences, backwards = layer.go_backwards, mask,
                               x](Evaluation& e) {
    const std::string name = layer + "/lstm_cell";
    const Array& recurrent = e.weights.at(name + "/recurrent_kernel");
    const auto units = static_cast<size_t>(u);
    return unrolled(x.value(e), e.weights.at(name + "/kernel"), bias ? e.weights.at(name + "/bias") : Array{},
                    u, 4, sequences, Walk(e, layer, mask ? &*mask : nullptr, backwards),
                    [&](const std::vector<double>& z, std::vector<double>& h, std::vector<double>& c,
                        const std::vector<double>& dropped) {
                      const std::vector<double> y = times(dropped, recurrent, nullptr);
                      for (size_t k = 0; k < units; ++k) {
                        const auto gate = [&](size_t g) { return z[g * units + k] + y[g * units + k]; };
                        c[k] = sigmoid(gate(1)) * c[k] + sigmoid(gate(0)) * std::tanh(gate(2));
                        h[k] = sigmoid(gate(3)) * std::tanh(c[k]);
                      }
                    });
  });
}

inline Twin apply(const layers::GRU& layer, const Twin& x, const std::optional<Twin>& mask = {}) {
  return twin(layer(x.place), [layer = layer.name, u = layer.units, has_bias = layer.use_bias,
                               after = layer.reset_after, sequences = layer.return_sequences,
                               backwards = layer.go_backwards, mask, x](Evaluation& e) {
    const std::string name = layer + "/gru_cell";
    const Array& recurrent = e.weights.at(name + "/recurrent_kernel");
    const Array bias = has_bias ? e.weights.at(name + "/bias") : Array{};
    const auto units = static_cast<size_t>(u);
    return unrolled(x.value(e), e.weights.at(name + "/kernel"), bias, u, 3, sequences,
                    Walk(e, layer, mask ? &*mask : nullptr, backwards),
                    [&](const std::vector<double>& z, std::vector<double>& h, std::vector<double>&,
                        const std::vector<double>& dropped) {
                      const double* of_state = has_bias && after ? bias.values.data() + 3 * u : nullptr;
                      const std::vector<double> y = times(dropped, recurrent, of_state);
                      const auto gate = [&](size_t g, size_t k) {
                        return sigmoid(z[g * units + k] + y[g * units + k]);
                      };
                      std::vector<double> reset(units);
                      for (size_t k = 0; k < units; ++k) reset[k] = gate(1, k) * dropped[k];
                      const std::vector<double> before = times(reset, recurrent, nullptr);
                      for (size_t k = 0; k < units; ++k) {
                        const double of_last = after ? gate(1, k) * y[2 * units + k] : before[2 * units + k];
                        h[k] = gate(0, k) * h[k] + (1.0 - gate(0, k)) * std::tanh(z[2 * units + k] + of_last);
                      }
                    });
  });
}

}  // namespace rondo::test
