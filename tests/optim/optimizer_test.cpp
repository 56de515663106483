#include "runtime/optim/optimizer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/kernels/kernel.h"
#include "runtime/kernels/update.h"
#include "tests/support/count_allocations.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class OptimizerTest : public testing::Test {
 protected:
  // One step over all spans, as the trainer does it.
  void step(Optimizer& optimizer, std::vector<std::vector<float>>& weights,
            const std::vector<std::vector<float>>& gradients) {
    optimizer.begin_step(state_);
    const Execution on{.stream = *stream_, .state = &state_};
    if (optimizer.needs_norm()) {
      for (size_t i = 0; i < gradients.size(); ++i) {
        optimizer.add_squares(on, static_cast<int>(i), gradients[i]);
      }
      optimizer.clip(on, &state_);
    }
    for (size_t i = 0; i < weights.size(); ++i)
      optimizer.update(on, static_cast<int>(i), weights[i], gradients[i]);
    ++state_.step;
  }

  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<KernelBackend> backend_ = make_cpu_backend(*device_);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  StepState state_;
};

TEST_F(OptimizerTest, NormClippingCoversAllSpansAndLeavesSmallGradientsAlone) {
  Optimizer optimizer(SGD{.learning_rate = 1.0, .clip = {.global_clipnorm = 1.0}}, *backend_);
  EXPECT_TRUE(optimizer.needs_norm());
  const int64_t counts[] = {1, 1};
  optimizer.bind(counts);
  std::vector<std::vector<float>> w{{0.0f}, {0.0f}};
  step(optimizer, w, {{3.0f}, {-4.0f}});
  EXPECT_NEAR(w[0][0], -0.6, 1e-7);
  EXPECT_NEAR(w[1][0], 0.8, 1e-7);
  step(optimizer, w, {{0.6f}, {-0.8f}});
  EXPECT_NEAR(w[0][0], -1.2, 1e-6);
  EXPECT_NEAR(w[1][0], 1.6, 1e-6);
  EXPECT_NEAR(*optimizer.norm(), 1.0, 1e-7);
  EXPECT_FALSE(Optimizer(SGD{}, *backend_).needs_norm());
}

TEST_F(OptimizerTest, NormClippingScalesByLimitOverNorm) {
  Optimizer optimizer(SGD{.learning_rate = 1.0, .clip = {.global_clipnorm = 1.0}}, *backend_);
  const int64_t counts[] = {1, 2};
  optimizer.bind(counts);
  const auto scale = [&](float first, float second) {
    std::vector<std::vector<float>> w{{0.0f}, {0.0f, 0.0f}};
    step(optimizer, w, {{first}, {second, 0.0f}});
    return state_.clip_scale;
  };
  EXPECT_EQ(scale(0.3f, 0.4f), 1.0f);
  EXPECT_NEAR(*optimizer.norm(), 0.5, 1e-7);
  EXPECT_EQ(scale(2.0f, 0.0f), 0.5f);
  EXPECT_EQ(*optimizer.norm(), 2.0);
  EXPECT_TRUE(std::isnan(scale(std::numeric_limits<float>::quiet_NaN(), 1.0f)));
  EXPECT_TRUE(std::isnan(*optimizer.norm()));
}

TEST_F(OptimizerTest, BeginStepFillsTheState) {
  Optimizer optimizer(
      SGD{.learning_rate = 1.0, .schedule = {.rule = StepSchedule{.every = 2, .factor = 0.5}}}, *backend_);
  state_.step = 5;
  state_.gradient_scale = 0.3f;
  optimizer.begin_step(state_);
  EXPECT_EQ(state_.learning_rate, 0.25f);
  EXPECT_EQ(state_.update, 6);
  EXPECT_EQ(state_.gradient_scale, 1.0f);
  optimizer.set_learning_rate(2.0);
  EXPECT_EQ(optimizer.learning_rate(), 2.0);
  EXPECT_EQ(std::get<SGD>(optimizer.config()).learning_rate, 2.0);
  optimizer.begin_step(state_);
  EXPECT_EQ(state_.learning_rate, 0.5f);
  EXPECT_THAT([&] { optimizer.set_learning_rate(-1.0); }, ThrowsMessage<InvalidArgument>(HasSubstr("-1")));
}

TEST_F(OptimizerTest, OpenCosineTakesTheRunsLength) {
  Optimizer optimizer(Adam{.learning_rate = 1.0, .schedule = {.rule = CosineSchedule{}, .warmup_steps = 10}},
                      *backend_);
  state_.step = 50;
  EXPECT_THAT([&] { optimizer.begin_step(state_); },
              ThrowsMessage<InvalidArgument>(HasSubstr("number of steps")));
  optimizer.set_total_steps(90);
  optimizer.begin_step(state_);
  EXPECT_NEAR(state_.learning_rate, 0.5, 1e-6);  // 40 of 80 steps after the warm-up
  optimizer.set_total_steps(50);                 // a later, other length counts
  optimizer.begin_step(state_);
  EXPECT_NEAR(state_.learning_rate, 0.0, 1e-6);

  Optimizer fixed(Adam{.learning_rate = 1.0, .schedule = {.rule = CosineSchedule{.total_steps = 100}}},
                  *backend_);
  fixed.set_total_steps(1000);
  fixed.begin_step(state_);
  EXPECT_NEAR(state_.learning_rate, 0.5, 1e-6);
}

TEST_F(OptimizerTest, BindingAgainStartsFromZeroSlots) {
  Optimizer optimizer(SGD{.momentum = 0.9}, *backend_);
  const int64_t counts[] = {2};
  std::vector<std::vector<float>> first{{1.0f, 2.0f}};
  std::vector<std::vector<float>> second = first;
  optimizer.bind(counts);
  step(optimizer, first, {{1.0f, 1.0f}});
  optimizer.bind(counts);
  step(optimizer, second, {{1.0f, 1.0f}});
  EXPECT_EQ(first, second);
}

TEST_F(OptimizerTest, RefusesSpansThatAreNotBound) {
  Optimizer optimizer(Adam{}, *backend_);
  const int64_t counts[] = {4};
  optimizer.bind(counts);
  const Execution on{.stream = *stream_, .state = &state_};
  std::vector<float> w(4);
  std::vector<float> g(3);
  EXPECT_THAT([&] { optimizer.update(on, 1, w, w); },
              ThrowsMessage<InvalidArgument>(HasSubstr("span 1 is not bound")));
  EXPECT_THAT([&] { optimizer.update(on, 0, w, g); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("4 elements"), HasSubstr("3 gradients"))));
}

TEST_F(OptimizerTest, StepsAllocateNothing) {
  Optimizer optimizer(Adam{.schedule = {.rule = CosineSchedule{.total_steps = 9}, .warmup_steps = 2},
                           .clip = {.global_clipnorm = 1.0}},
                      *backend_);
  const int64_t counts[] = {300};
  optimizer.bind(counts);
  std::vector<std::vector<float>> w{std::vector<float>(300)};
  const std::vector<std::vector<float>> g{std::vector<float>(300, 0.5f)};
  step(optimizer, w, g);
  const int64_t before = test::allocations_of_this_thread();
  for (int i = 0; i < 5; ++i) step(optimizer, w, g);
  EXPECT_EQ(test::allocations_of_this_thread(), before);
}

}  // namespace
}  // namespace rondo
