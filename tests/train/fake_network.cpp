#include "tests/train/fake_network.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace rondo::test {

FakeNetwork::FakeNetwork(Device& device, const FakeNetworkOptions& options) : options_(options) {
  const std::string& first = options.first_name;
  add(device, kW1, first + "/kernel", {options.inputs, options.hidden}, true);
  add(device, kB1, first + "/bias", {options.hidden}, true);
  add(device, kMean, "inputs/moving_mean", {options.inputs}, false);
  add(device, kW2, "dense_2/kernel", {options.hidden, options.classes}, true);
  add(device, kB2, "dense_2/bias", {options.classes}, true);
  constexpr size_t kMostRows = 512;
  hidden_.resize(kMostRows * static_cast<size_t>(options.hidden));
  output_.resize(kMostRows * static_cast<size_t>(options.classes));
  d_w1_.resize(storage_[kW1].value.memory<float>().size());
  d_b1_.resize(storage_[kB1].value.memory<float>().size());
  d_w2_.resize(storage_[kW2].value.memory<float>().size());
  d_b2_.resize(storage_[kB2].value.memory<float>().size());
}

void FakeNetwork::add(Device& device, size_t index, const std::string& name, Shape shape, bool trainable) {
  Parameter& parameter = storage_[index];
  parameter.name = name;
  parameter.desc.shape = shape;
  parameter.trainable = trainable;
  parameter.value_storage = device.allocate(parameter.desc.bytes());
  parameter.value = {parameter.desc, parameter.value_storage.data()};
  uint64_t i = 0;
  for (float& value : parameter.value.memory<float>()) {
    const auto words =
        random_words({.seed = options_.seed, .purpose = RandomPurpose::kInitializer}, index, i++);
    value = trainable ? uniform_float(words[0]) - 0.5f : 0.0f;
  }
  parameters_.push_back(&parameter);
}

void FakeNetwork::run(const float* input, int64_t row) {
  const int64_t h = options_.hidden;
  const int64_t c = options_.classes;
  double* hidden = hidden_.data() + row * h;
  double* output = output_.data() + row * c;
  for (int64_t j = 0; j < h; ++j) {
    double sum = static_cast<double>(storage_[kB1].value.as<float>()[j]);
    for (int64_t i = 0; i < options_.inputs; ++i) {
      sum += static_cast<double>(input[i]) * static_cast<double>(storage_[kW1].value.as<float>()[i * h + j]);
    }
    hidden[j] = std::tanh(sum);
  }
  double total = 0.0;
  for (int64_t k = 0; k < c; ++k) {
    double sum = static_cast<double>(storage_[kB2].value.as<float>()[k]);
    for (int64_t j = 0; j < h; ++j) {
      sum += hidden[j] * static_cast<double>(storage_[kW2].value.as<float>()[j * c + k]);
    }
    output[k] = std::exp(sum);
    total += output[k];
  }
  for (int64_t k = 0; k < c; ++k) output[k] /= total;
}

void FakeNetwork::forward(const Execution& on, const Batch& batch, Mode mode, std::span<double> sums) {
  RONDO_CHECK(batch.rows > 0 && sums.size() == 2);
  if (mode == Mode::kTraining && on_step) on_step(*on.state);
  batch_ = &batch;
  if (mode == Mode::kTraining) inverse_batch_ = on.state->inverse_batch;
  sums[0] = sums[1] = 0.0;
  const int64_t c = options_.classes;
  for (int64_t row = 0; row < batch.rows; ++row) {
    run(batch.inputs[0].as<float>() + row * options_.inputs, row);
    const double* output = output_.data() + row * c;
    const int32_t label = batch.labels[0].as<int32_t>()[row];
    sums[0] -= std::log(output[label]);
    sums[1] += std::max_element(output, output + c) - output == label ? 1.0 : 0.0;
  }
  if (mode == Mode::kInference) evaluated_rows += batch.rows;
  if (mode == Mode::kInference) return;
  for (int64_t i = 0; i < options_.inputs; ++i) {
    double sum = 0.0;
    for (int64_t row = 0; row < batch.rows; ++row) {
      sum += static_cast<double>(batch.inputs[0].as<float>()[row * options_.inputs + i]);
    }
    float& mean = storage_[kMean].value.as<float>()[i];
    mean = 0.9f * mean + 0.1f * static_cast<float>(sum / static_cast<double>(batch.rows));
  }
}

void FakeNetwork::backward(const Execution&, GradSink& sink) {
  const int64_t n = options_.inputs;
  const int64_t h = options_.hidden;
  const int64_t c = options_.classes;
  for (auto* sums : {&d_w1_, &d_b1_, &d_w2_, &d_b2_}) std::fill(sums->begin(), sums->end(), 0.0);
  for (int64_t row = 0; row < batch_->rows; ++row) {
    const float* input = batch_->inputs[0].as<float>() + row * n;
    const double* hidden = hidden_.data() + row * h;
    double* d_output = output_.data() + row * c;
    d_output[batch_->labels[0].as<int32_t>()[row]] -= 1.0;
    for (int64_t k = 0; k < c; ++k) d_b2_[static_cast<size_t>(k)] += d_output[k];
    for (int64_t j = 0; j < h; ++j) {
      double d_hidden = 0.0;
      for (int64_t k = 0; k < c; ++k) {
        d_w2_[static_cast<size_t>(j * c + k)] += hidden[j] * d_output[k];
        d_hidden += d_output[k] * static_cast<double>(storage_[kW2].value.as<float>()[j * c + k]);
      }
      d_hidden *= 1.0 - hidden[j] * hidden[j];
      d_b1_[static_cast<size_t>(j)] += d_hidden;
      for (int64_t i = 0; i < n; ++i) {
        d_w1_[static_cast<size_t>(i * h + j)] += d_hidden * static_cast<double>(input[i]);
      }
    }
  }
  const auto finish = [&](size_t index, const std::vector<double>& sums) {
    const auto grad = storage_[index].grad.memory<float>();
    for (size_t i = 0; i < sums.size(); ++i) {
      grad[i] = static_cast<float>(sums[i] * static_cast<double>(inverse_batch_));
    }
    sink.ready(storage_[index]);
  };
  finish(kB2, d_b2_);
  finish(kW2, d_w2_);
  finish(kB1, d_b1_);
  finish(kW1, d_w1_);
}

void FakeNetwork::predict(const Execution&, const Batch& batch, std::span<const std::span<float>> outputs) {
  const std::span<float> out = outputs[0];
  for (int64_t row = 0; row < batch.rows; ++row) {
    run(batch.inputs[0].as<float>() + row * options_.inputs, row);
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(output_[i]);
}

std::vector<float> FakeNetwork::weights() const {
  std::vector<float> all;
  for (const Parameter& parameter : storage_) {
    const auto values = parameter.value.memory<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<float> FakeNetwork::trained_weights() const {
  std::vector<float> all;
  for (const Parameter& parameter : storage_) {
    if (!parameter.trainable) continue;
    const auto values = parameter.value.memory<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace rondo::test
