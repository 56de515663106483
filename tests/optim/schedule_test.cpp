#include "runtime/optim/schedule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

#include "runtime/base/error.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::DoubleNear;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Schedule, ConstantStaysAtTheBase) {
  EXPECT_EQ(learning_rate_at({}, 0.25, 0), 0.25);
  EXPECT_EQ(learning_rate_at({}, 0.25, 1'000'000), 0.25);
}

TEST(Schedule, StepDropsByItsFactor) {
  const Schedule schedule{.rule = StepSchedule{.every = 10, .factor = 0.5}};
  EXPECT_EQ(learning_rate_at(schedule, 1.0, 0), 1.0);
  EXPECT_EQ(learning_rate_at(schedule, 1.0, 9), 1.0);
  EXPECT_EQ(learning_rate_at(schedule, 1.0, 10), 0.5);
  EXPECT_EQ(learning_rate_at(schedule, 1.0, 35), 0.125);
}

TEST(Schedule, CosineFallsToAlphaAndStays) {
  const Schedule schedule{.rule = CosineSchedule{.total_steps = 100, .alpha = 0.2}};
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 0), DoubleNear(2.0, 1e-15));
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 50), DoubleNear(2.0 * (0.8 * 0.5 + 0.2), 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 25),
              DoubleNear(2.0 * (0.8 * 0.5 * (1.0 + std::numbers::sqrt2 / 2.0) + 0.2), 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 100), DoubleNear(0.4, 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 1000), DoubleNear(0.4, 1e-12));
}

TEST(Schedule, CosineOfKerasWarmsUpToItsTarget) {
  const Schedule schedule{
      .rule = CosineSchedule{.total_steps = 100, .alpha = 0.2, .warmup_target = 2.0, .warmup_steps = 10}};
  EXPECT_THAT(learning_rate_at(schedule, 1.0, 0), DoubleNear(1.0, 1e-15));
  EXPECT_THAT(learning_rate_at(schedule, 1.0, 5), DoubleNear(1.5, 1e-15));
  EXPECT_THAT(learning_rate_at(schedule, 1.0, 10), DoubleNear(2.0, 1e-15));
  EXPECT_THAT(learning_rate_at(schedule, 1.0, 60), DoubleNear(2.0 * (0.8 * 0.5 + 0.2), 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 1.0, 500), DoubleNear(0.4, 1e-12));
}

TEST(Schedule, ExponentialAndInverseTimeDecay) {
  Schedule schedule{.rule = ExponentialSchedule{.every = 10, .rate = 0.25}};
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 5), DoubleNear(1.0, 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 25), DoubleNear(2.0 * std::pow(0.25, 2.5), 1e-12));
  schedule.rule = ExponentialSchedule{.every = 10, .rate = 0.25, .staircase = true};
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 9), DoubleNear(2.0, 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 29), DoubleNear(0.125, 1e-12));
  schedule.rule = InverseTimeSchedule{.every = 4, .rate = 0.5};
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 6), DoubleNear(2.0 / 1.75, 1e-12));
  schedule.rule = InverseTimeSchedule{.every = 4, .rate = 0.5, .staircase = true};
  EXPECT_THAT(learning_rate_at(schedule, 2.0, 7), DoubleNear(2.0 / 1.5, 1e-12));
}

TEST(Schedule, PiecewiseConstantIncludesItsBoundaries) {
  const Schedule schedule{.rule = PiecewiseSchedule{.boundaries = {2, 5}, .values = {1.0, 0.5, 0.1}}};
  const double expected[] = {1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.1, 0.1};
  for (int64_t step = 0; step < 8; ++step) EXPECT_EQ(learning_rate_at(schedule, 9.0, step), expected[step]);
}

TEST(Schedule, PolynomialFallsToItsEndOrCycles) {
  Schedule schedule{.rule = PolynomialSchedule{.total_steps = 10, .end = 0.2, .power = 2.0}};
  EXPECT_THAT(learning_rate_at(schedule, 1.2, 0), DoubleNear(1.2, 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 1.2, 5), DoubleNear(0.45, 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 1.2, 25), DoubleNear(0.2, 1e-12));
  schedule.rule = PolynomialSchedule{.total_steps = 10, .end = 0.2, .cycle = true};
  EXPECT_THAT(learning_rate_at(schedule, 1.2, 0), DoubleNear(1.2, 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 1.2, 10), DoubleNear(0.2, 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 1.2, 11), DoubleNear(0.2 + 9.0 / 20.0, 1e-12));
  EXPECT_THAT(learning_rate_at(schedule, 1.2, 25), DoubleNear(0.2 + 5.0 / 30.0, 1e-12));
}

TEST(Schedule, WarmUpRisesLinearlyThenTheRuleCountsFromZero) {
  const Schedule schedule{.rule = StepSchedule{.every = 2, .factor = 0.1}, .warmup_steps = 4};
  const double expected[] = {0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 0.1, 0.1};
  for (int64_t step = 0; step < 8; ++step) {
    EXPECT_THAT(learning_rate_at(schedule, 1.0, step), DoubleNear(expected[step], 1e-12)) << step;
  }
}

TEST(Schedule, ParsesEveryForm) {
  EXPECT_EQ(schedule_text(parse_schedule("constant")), "constant");
  EXPECT_EQ(schedule_text(parse_schedule("step:1000")), "step:1000:0.1");
  EXPECT_EQ(schedule_text(parse_schedule("step:5:0.25,warmup:7")), "step:5:0.25,warmup:7");
  EXPECT_EQ(schedule_text(parse_schedule("cosine")), "cosine");
  EXPECT_EQ(schedule_text(parse_schedule("cosine:300")), "cosine:300:0");
  EXPECT_EQ(schedule_text(parse_schedule("cosine:300:0.01,warmup:10")), "cosine:300:0.01,warmup:10");
  EXPECT_EQ(schedule_text(parse_schedule("constant,warmup:10")), "constant,warmup:10");
  for (const std::string text :
       {"exponential:10:0.5", "exponential:10:0.5:staircase", "inverse:3:0.25", "inverse:3:0.25:staircase",
        "polynomial:10:0.0001:1", "polynomial:10:0.5:2:cycle", "piecewise:0.1:5:0.01",
        "piecewise:0.1:5:0.01:9:0.001"}) {
    EXPECT_EQ(schedule_text(parse_schedule(text)), text);
  }
  EXPECT_EQ(schedule_text(parse_schedule("polynomial:7")), "polynomial:7:0.0001:1");
}

TEST(Schedule, RefusesBadTextAndQuotesIt) {
  for (const std::string text : {"",
                                 "linear",
                                 "constant:1",
                                 "step",
                                 "step:",
                                 "step:x",
                                 "step:10:",
                                 "step:10:0.1:2",
                                 "step:0",
                                 "step:-3",
                                 "step:5:0",
                                 "step:5:-1",
                                 "step:5:nan",
                                 "cosine:0",
                                 "cosine:-1",
                                 "cosine:10:2",
                                 "cosine:1:0:0",
                                 "exponential:10",
                                 "exponential:0:0.5",
                                 "exponential:10:-1",
                                 "exponential:10:0.5:stairs",
                                 "inverse:5:nan",
                                 "polynomial",
                                 "polynomial:0",
                                 "polynomial:5:0.1:1:twice",
                                 "piecewise:0.1",
                                 "piecewise:0.1:5",
                                 "piecewise:0.1:5:0.2:5:0.3",
                                 "piecewise:0.1:5:-0.2",
                                 "step:1.5",
                                 "constant,",
                                 "constant,warmup",
                                 "constant,warmup:-1",
                                 "constant,warmup:2:3",
                                 "constant,warmup:1,warmup:1",
                                 "Constant",
                                 "step:99999999999999999999",
                                 "step:5 "}) {
    EXPECT_THAT([&] { parse_schedule(text); },
                ThrowsMessage<InvalidArgument>(
                    AllOf(HasSubstr("\"" + text + "\""), HasSubstr("step:EVERY[:FACTOR]"))));
  }
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  const auto rate = [](const Schedule& schedule) { return [=] { learning_rate_at(schedule, 1.0, 0); }; };
  EXPECT_THAT(rate({.rule = StepSchedule{}}), ThrowsMessage<InvalidArgument>(HasSubstr("every 0 steps")));
  EXPECT_THAT(rate({.rule = StepSchedule{.every = 1, .factor = -1}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("-1")));
  EXPECT_THAT(rate({.rule = CosineSchedule{}}), ThrowsMessage<InvalidArgument>(HasSubstr("number of steps")));
  EXPECT_THAT(rate({.rule = CosineSchedule{.total_steps = 5, .alpha = 1.5}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("1.5")));
  EXPECT_THAT(rate({.warmup_steps = -1}), ThrowsMessage<InvalidArgument>(HasSubstr("warm-up of -1")));
}

}  // namespace
}  // namespace rondo
