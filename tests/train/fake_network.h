// A small network in plain C++: softmax(tanh(x W1 + b1) W2 + b2), with a moving mean of its inputs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/train/network.h"

namespace rondo::test {

struct FakeNetworkOptions {
  int64_t inputs = 5;
  int64_t hidden = 7;
  int64_t classes = 3;
  uint64_t seed = 1;
  std::string first_name = "dense_1";
};

class FakeNetwork : public Network {
 public:
  FakeNetwork(Device& device, const FakeNetworkOptions& options);

  const ParameterList& parameters() override { return parameters_; }
  const std::vector<std::string>& metric_names() override { return metric_names_; }
  void prepare(int64_t rows, Mode mode) override { prepared.insert({rows, mode}); }
  void forward(const Execution& on, const Batch& batch, Mode mode, std::span<double> sums) override;
  void backward(const Execution& on, GradSink& sink) override;
  void predict(const Execution& on, const Batch& batch, std::span<const std::span<float>> outputs) override;
  std::vector<Shape> output_shapes() const override { return {{options_.classes}}; }

  Parameter& parameter(size_t index) { return storage_[index]; }
  std::vector<float> weights() const;          // of all parameters
  std::vector<float> trained_weights() const;  // without the moving mean

  std::set<std::pair<int64_t, Mode>> prepared;
  // Called at the start of every training forward, e.g. to throw.
  std::function<void(const StepState&)> on_step;
  // Labels of all rows that forward saw in inference.
  int64_t evaluated_rows = 0;

 private:
  void add(Device& device, size_t index, const std::string& name, Shape shape, bool trainable);
  void run(const float* input, int64_t row);

  static constexpr size_t kW1 = 0, kB1 = 1, kMean = 2, kW2 = 3, kB2 = 4;
  FakeNetworkOptions options_;
  std::array<Parameter, 5> storage_;
  ParameterList parameters_;
  std::vector<std::string> metric_names_{"accuracy"};
  std::vector<double> hidden_, output_;            // (rows, ...)
  std::vector<double> d_w1_, d_b1_, d_w2_, d_b2_;  // gradient sums
  const Batch* batch_ = nullptr;
  float inverse_batch_ = 0.0f;
};

}  // namespace rondo::test
