#pragma once

#include <vector>

#include "runtime/optim/optimizer.h"

namespace rondo::test {

// The optimizers' formulas in float64, one element at a time: clipping, decay and schedule included. Written
// from Keras' formulas, apart from the product's.
class UpdateOracle {
 public:
  UpdateOracle(OptimizerConfig config, std::vector<SpanLayout> spans);
  void set_weights(const std::vector<std::vector<float>>& weights);
  void step(const std::vector<std::vector<float>>& gradients);
  const std::vector<std::vector<double>>& weights() const { return weights_; }

 private:
  struct Tensor {
    double* w;
    std::vector<double> g;
    std::vector<double>*a, *b, *c;
    bool excluded;
  };
  void clip(std::vector<Tensor>& tensors) const;
  void update(const SGD& o, double rate, Tensor& t);
  void update(const RMSprop& o, double rate, Tensor& t);
  void update(const Adam& o, double rate, Tensor& t);
  void update(const Adagrad& o, double rate, Tensor& t);
  void update(const Adadelta& o, double rate, Tensor& t);
  void update(const AdamW& o, double rate, Tensor& t);
  void update(const Adamax& o, double rate, Tensor& t);
  void update(const Nadam& o, double rate, Tensor& t);
  void update(const LARS& o, double rate, Tensor& t);
  void update(const LAMB& o, double rate, Tensor& t);

  OptimizerConfig config_;
  std::vector<SpanLayout> spans_;
  std::vector<std::vector<double>> weights_;
  std::vector<std::vector<std::vector<double>>> slots_;  // of each tensor, three
  int t_ = 0;
  double momenta_ = 1.0;  // Nadam's product
};

}  // namespace rondo::test
