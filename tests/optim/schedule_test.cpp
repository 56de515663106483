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
