#include <gmock/gmock.h>

#include <limits>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/optim/optimizer.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(OptimizerConfig, NamesGiveKerasDefaults) {
  const auto sgd = std::get<SGD>(optimizer_by_name("sgd"));
  EXPECT_EQ(sgd.learning_rate, 0.01);
  EXPECT_EQ(sgd.momentum, 0.0);
  const auto rmsprop = std::get<RMSprop>(optimizer_by_name("rmsprop"));
  EXPECT_EQ(rmsprop.learning_rate, 0.001);
  EXPECT_EQ(rmsprop.rho, 0.9);
  const auto adam = std::get<Adam>(optimizer_by_name("adam"));
  EXPECT_EQ(adam.learning_rate, 0.001);
  EXPECT_EQ(adam.beta_1, 0.9);
  EXPECT_EQ(adam.beta_2, 0.999);
  EXPECT_EQ(adam.epsilon, 1e-7);
  for (const char* name : {"sgd", "rmsprop", "adam"})
    EXPECT_EQ(optimizer_name(optimizer_by_name(name)), name);
  EXPECT_THAT([] { optimizer_by_name("Adamm"); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"Adamm\""), HasSubstr("sgd, rmsprop, adam"))));
}

TEST(OptimizerConfig, DescriptionTellsEverySetting) {
  EXPECT_EQ(
      describe(SGD{}),
      "sgd learning_rate=0.01 momentum=0 nesterov=false schedule=constant global_clipnorm=0 clipvalue=0");
  EXPECT_EQ(
      describe(RMSprop{.clip = {.global_clipnorm = 1.5}}),
      "rmsprop learning_rate=0.001 rho=0.9 epsilon=1e-07 schedule=constant global_clipnorm=1.5 clipvalue=0");
  EXPECT_EQ(
      describe(Adam{.schedule = {.rule = StepSchedule{.every = 9}}, .clip = {.clipvalue = 2}}),
      "adam learning_rate=0.001 beta_1=0.9 beta_2=0.999 epsilon=1e-07 schedule=step:9:0.1 global_clipnorm=0 "
      "clipvalue=2");
}

TEST(OptimizerConfig, RefusesSettingsOutOfRange) {
  const auto device = make_cpu_device(1);
  const auto backend = make_cpu_backend(*device);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    OptimizerConfig config;
    const char* says;
  } cases[] = {
      {SGD{.learning_rate = -0.1}, "learning rate is -0.1"},
      {SGD{.learning_rate = nan}, "learning rate is nan"},
      {SGD{.momentum = 1.0}, "sgd: momentum is 1; it must lie in [0, 1)"},
      {SGD{.momentum = -0.5}, "sgd: momentum is -0.5"},
      {RMSprop{.rho = 1.5}, "rmsprop: rho is 1.5"},
      {RMSprop{.epsilon = 0.0}, "rmsprop: epsilon is 0"},
      {Adam{.beta_1 = 1.0}, "adam: beta_1 is 1"},
      {Adam{.beta_2 = nan}, "adam: beta_2 is nan"},
      {Adam{.epsilon = -1.0}, "adam: epsilon is -1"},
      {Adam{.schedule = {.rule = StepSchedule{}}}, "every 0 steps"},
      {Adam{.clip = {.global_clipnorm = -1.0}}, "global_clipnorm is -1"},
      {Adam{.clip = {.clipvalue = nan}}, "clipvalue is nan"},
  };
  for (const auto& [config, says] : cases) {
    EXPECT_THAT([&] { Optimizer(config, *backend); }, ThrowsMessage<InvalidArgument>(HasSubstr(says)));
  }
}

}  // namespace
}  // namespace rondo
