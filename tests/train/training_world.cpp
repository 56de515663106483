#include "tests/train/training_world.h"

#include <cmath>
#include <exception>

#include "runtime/base/random.h"

namespace rondo::test {

std::shared_ptr<ArraySource> learnable_data(int64_t size, uint64_t seed) {
  constexpr int64_t kInputs = 5;
  std::vector<float> inputs;
  std::vector<int32_t> labels;
  for (int64_t row = 0; row < size; ++row) {
    float sum = 0.0f;
    for (int64_t i = 0; i < kInputs; ++i) {
      const auto words = random_words({.seed = seed, .purpose = RandomPurpose::kSynthetic},
                                      static_cast<uint64_t>(row), static_cast<uint64_t>(i));
      inputs.push_back(2.0f * uniform_float(words[0]) - 1.0f);
      sum += inputs.back() * static_cast<float>(i - 1);
    }
    labels.push_back(sum < -0.5f ? 0 : sum < 0.5f ? 1 : 2);
  }
  ArrayData data;
  data.name = "learnable";
  data.input_shape = {kInputs};
  data.input = std::move(inputs);
  data.labels = std::move(labels);
  data.classes = 3;
  return std::make_shared<ArraySource>(std::move(data));
}

Decision Recorder::on_step_end(const StepReport& report) {
  steps.push_back(report);
  losses.push_back(report.loss);
  accuracies.push_back(report.metrics[0]);
  return Decision::kContinue;
}

std::vector<std::string> errors_of_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    try {
      body(comm);
    } catch (const std::exception& e) {
      errors[static_cast<size_t>(comm.rank())] = e.what();
    }
  });
  return errors;
}

}  // namespace rondo::test
