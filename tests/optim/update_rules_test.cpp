// Every optimizer against golden values and a float64 oracle, on the backend this program is linked with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/update_rules.h"
#include "runtime/kernels/kernel.h"
#include "runtime/optim/optimizer.h"
#include "tests/kernels/backend_under_test.h"
#include "tests/optim/update_oracle.h"

namespace rondo::test {
namespace {

using Arrays = std::vector<std::vector<float>>;

class RulesTest : public testing::Test {
 protected:
  // One step over all spans, as the trainer does it.
  void step(Optimizer& optimizer, Arrays& weights, const Arrays& gradients) {
    optimizer.begin_step(state_);
    Device& device = *under_test_.device;
    const Buffer state = device.allocate(sizeof(StepState));
    stream_->copy(state.data(), &state_, sizeof(state_));
    std::vector<Buffer> w, g;
    for (size_t i = 0; i < weights.size(); ++i) {
      w.push_back(upload(weights[i]));
      g.push_back(upload(gradients[i]));
    }
    const Execution on{.stream = *stream_, .state = state.as<StepState>()};
    const auto span_of = [](const Buffer& from, size_t count) {
      return std::span<float>(from.as<float>(), count);
    };
    for (size_t i = 0; optimizer.needs_norm() && i < g.size(); ++i) {
      optimizer.add_squares(on, static_cast<int>(i), span_of(g[i], gradients[i].size()));
    }
    if (optimizer.needs_norm()) optimizer.clip(on, state.as<StepState>());
    for (size_t i = 0; i < w.size(); ++i) {
      optimizer.update(on, static_cast<int>(i), span_of(w[i], weights[i].size()),
                       span_of(g[i], gradients[i].size()));
      stream_->copy(weights[i].data(), w[i].data(), static_cast<int64_t>(weights[i].size() * sizeof(float)));
    }
    stream_->synchronize();
    ++state_.step;
  }

  Buffer upload(const std::vector<float>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    Buffer to = under_test_.device->allocate(std::max<int64_t>(bytes, 64));
    stream_->copy(to.data(), values.data(), bytes);
    return to;
  }

  BackendUnderTest under_test_ = make_backend_under_test(2);
  std::unique_ptr<Stream> stream_ = under_test_.device->make_stream();
  StepState state_;
};

struct Golden {
  const char* name;
  OptimizerConfig config;
  double weights[3];
};

class GoldenValues : public RulesTest, public testing::WithParamInterface<Golden> {};

// w = 1 under the gradients 0.1, -0.2, 0.3. The values were worked out in float64 from Keras' formulas.
TEST_P(GoldenValues, OfThreeSteps) {
  Optimizer optimizer(GetParam().config, *under_test_.backend);
  const int64_t counts[] = {1};
  optimizer.bind(counts);
  Arrays w{{1.0f}};
  const float gradients[] = {0.1f, -0.2f, 0.3f};
  for (size_t t = 0; t < 3; ++t) {
    step(optimizer, w, {{gradients[t]}});
    EXPECT_NEAR(w[0][0], GetParam().weights[t], 1e-6) << "step " << t + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Keras, GoldenValues,
    testing::Values(Golden{"Sgd", SGD{}, {.999, 1.001, .998}},
                    Golden{"Momentum", SGD{.momentum = 0.9}, {.999, 1.0001, .99809}},
                    Golden{"Nesterov", SGD{.momentum = 0.9, .nesterov = true}, {.9981, 1.00109, .996281}},
                    Golden{"Decay", SGD{.decay = 0.1}, {.999, 1.000818182, .998318182}},
                    Golden{"RMSprop", RMSprop{}, {.996837732, .999694871, .997104235}},
                    Golden{"AdagradOld",
                           Adagrad{.learning_rate = 0.01, .initial_accumulator_value = 0.0},
                           {.990000010, .998944278, .990926443}},
                    Golden{"Adagrad", Adagrad{}, {.999698489, 1.000214886, .999602514}},
                    Golden{"Adadelta", Adadelta{.learning_rate = 1.0}, {.998585928, 1.000383668, .998219414}},
                    Golden{"Adam", Adam{}, {.999000032, .999366130, .999022892}},
                    Golden{"Adamax", Adamax{.learning_rate = 0.002}, {.998000002, .998578949, .998084484}},
                    Golden{"NadamOld", Nadam{.learning_rate = 0.002}, {.997887099, .999700212, .997933080}},
                    Golden{"NadamNew", Nadam{.schedule_decay = 1.0}, {.998937213, .999818878, .998987156}}),
    [](const auto& tested) { return std::string(tested.param.name); });

struct Named {
  const char* name;
  OptimizerConfig config;
};

class TwentySteps : public RulesTest, public testing::WithParamInterface<Named> {
 protected:
  // Two spans of several parameters with gaps between them, and an empty one.
  static std::vector<SpanLayout> layouts() {
    return {{.count = 48, .tensors = {{"dense/kernel", 0, 29}, {"dense/bias", 32, 16}}},
            {.count = 0, .tensors = {}},
            {.count = 17200, .tensors = {{"big/kernel", 0, 17150}, {"big/bias", 17152, 40}}}};
  }
};

TEST_P(TwentySteps, FollowTheOracle) {
  const OptimizerConfig& config = GetParam().config;
  const std::vector<SpanLayout> spans = layouts();
  Optimizer optimizer(config, *under_test_.backend);
  optimizer.bind(spans);
  UpdateOracle oracle(config, spans);

  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Arrays w;
  for (const SpanLayout& span : spans) {
    auto& values = w.emplace_back(static_cast<size_t>(span.count));
    for (const SpanTensor& tensor : span.tensors) {
      for (int64_t i = 0; i < tensor.count; ++i)
        values[static_cast<size_t>(tensor.offset + i)] = normal(random);
    }
  }
  oracle.set_weights(w);
  for (int64_t t = 0; t < 20; ++t) {
    Arrays gradients;
    for (const SpanLayout& span : spans) {
      auto& values = gradients.emplace_back(static_cast<size_t>(span.count));
      for (const SpanTensor& tensor : span.tensors) {
        const float scale = (t % 3 == 0 ? 0.01f : 1.0f) * (tensor.name == "dense/bias" ? 0.1f : 1.0f);
        for (int64_t i = 0; i < tensor.count; ++i) {
          values[static_cast<size_t>(tensor.offset + i)] = normal(random) * scale;
        }
      }
    }
    step(optimizer, w, gradients);
    oracle.step(gradients);
    if (t > 2 && t % 8 != 3) continue;  // the 20th step is the last
    for (size_t s = 0; s < w.size(); ++s) {
      for (size_t i = 0; i < w[s].size(); ++i) {
        const double exact = oracle.weights()[s][i];
        ASSERT_NEAR(w[s][i], exact, 4e-6 * std::max(1.0, std::abs(exact)))
            << "step " << t << ", span " << s << ", element " << i;
      }
    }
  }
}

TEST_P(TwentySteps, RepeatBitwise) {
  std::vector<Arrays> results;
  for (int run = 0; run < 2; ++run) {
    const std::vector<SpanLayout> spans = layouts();
    Optimizer optimizer(GetParam().config, *under_test_.backend);
    optimizer.bind(spans);
    state_.step = 0;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    Arrays w, g;
    for (const SpanLayout& span : spans) {
      for (Arrays* to : {&w, &g}) {
        auto& values = to->emplace_back(static_cast<size_t>(span.count));
        for (float& value : values) value = normal(random);
      }
    }
    for (int t = 0; t < 2; ++t) step(optimizer, w, g);
    results.push_back(w);
  }
  EXPECT_EQ(results[0], results[1]);
}

const std::vector<std::string> kBiases{"bias"};

INSTANTIATE_TEST_SUITE_P(
    Optimizers, TwentySteps,
    testing::Values(
        Named{"Sgd", SGD{}}, Named{"Momentum", SGD{.momentum = 0.9}},
        Named{"Nesterov", SGD{.learning_rate = 0.1, .momentum = 0.5, .nesterov = true}},
        Named{"GlobalNorm", SGD{.momentum = 0.9, .clip = {.global_clipnorm = 3.0}}},
        Named{"NormByTensor", SGD{.momentum = 0.9, .clip = {.clipnorm = 2.0}}},
        Named{"AllClips", SGD{.clip = {.clipvalue = 0.5, .clipnorm = 1.5}}},
        Named{"GlobalAfterValue", SGD{.clip = {.global_clipnorm = 1.5, .clipvalue = 0.5}}},
        Named{"StepsAndDecay",
              SGD{.decay = 0.1, .schedule = {.rule = StepSchedule{.every = 4, .factor = 0.5}}}},
        Named{"RMSprop", RMSprop{}},
        Named{"RMSpropClipped", RMSprop{.rho = 0.5, .epsilon = 1e-3, .clip = {.clipvalue = 0.4}}},
        Named{"RMSpropMomentum", RMSprop{.momentum = 0.8, .epsilon = 1e-3}},
        Named{"RMSpropCentered", RMSprop{.rho = 0.8, .epsilon = 1e-2, .centered = true}},
        Named{"RMSpropAll", RMSprop{.rho = 0.8, .momentum = 0.5, .epsilon = 1e-2, .centered = true}},
        Named{"RMSpropInside", RMSprop{.epsilon = 1e-3, .epsilon_inside = true}},
        Named{"Adagrad", Adagrad{.learning_rate = 0.01}},
        Named{"AdagradInside", Adagrad{.initial_accumulator_value = 0.0, .epsilon_inside = true}},
        Named{"Adadelta", Adadelta{.learning_rate = 0.5}}, Named{"Adam", Adam{}},
        Named{"AdamClipped",
              Adam{.schedule = {.rule = CosineSchedule{.total_steps = 12, .alpha = 0.1}, .warmup_steps = 5},
                   .clip = {.global_clipnorm = 2.0, .clipvalue = 0.05}}},
        Named{"Amsgrad", Adam{.learning_rate = 0.01, .beta_1 = 0.8, .beta_2 = 0.9, .amsgrad = true}},
        Named{"AdamW", AdamW{.learning_rate = 0.01, .weight_decay = 0.1}},
        Named{"AdamWExcluded",
              AdamW{.weight_decay = 0.5, .amsgrad = true, .exclude_from_weight_decay = kBiases}},
        Named{"Adamax", Adamax{}}, Named{"Nadam", Nadam{}},
        Named{"NadamNew", Nadam{.learning_rate = 0.01, .schedule_decay = 1.0}},
        Named{"Lars", LARS{.learning_rate = 1.0}},
        Named{"LarsClipped",
              LARS{.nesterov = true, .trust_coefficient = 0.1, .clip = {.clipvalue = 0.5, .clipnorm = 1.0}}},
        Named{"Lamb", LAMB{.learning_rate = 0.01}},
        Named{"LambDecay",
              LAMB{.weight_decay = 0.01, .exclude_from_weight_decay = kBiases, .clip = {.clipnorm = 1.0}}}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_F(RulesTest, SkippedUpdatesDoNotCountForNadam) {
  Optimizer skipping(Nadam{}, *under_test_.backend), straight(Nadam{}, *under_test_.backend);
  const int64_t counts[] = {3};
  skipping.bind(counts);
  straight.bind(counts);
  // Two steps of four were skipped: the device counts two updates fewer than the host.
  StepState state{.step = 3, .learning_rate = 0.0f};
  skipping.begin_step(state);
  EXPECT_EQ(state.update, 4);
  const NadamUpdate rule{};
  const UpdateRates behind = update::Nadam{rule}.prepare({0.001f, 2, 4, state.momentum_product});
  state.step = 1;
  straight.begin_step(state);
  const UpdateRates exact = update::Nadam{rule}.prepare({0.001f, 2, 2, state.momentum_product});
  EXPECT_FLOAT_EQ(behind.first, exact.first);
  EXPECT_FLOAT_EQ(behind.second, exact.second);
}

}  // namespace
}  // namespace rondo::test
