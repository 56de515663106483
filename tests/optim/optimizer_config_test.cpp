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
  const auto rmsprop = std::get<RMSprop>(optimizer_by_name("RMSprop"));
  EXPECT_EQ(rmsprop.learning_rate, 0.001);
  EXPECT_EQ(rmsprop.rho, 0.9);
  const auto adam = std::get<Adam>(optimizer_by_name("adam"));
  EXPECT_EQ(adam.learning_rate, 0.001);
  EXPECT_EQ(adam.beta_1, 0.9);
  EXPECT_EQ(adam.beta_2, 0.999);
  EXPECT_EQ(adam.epsilon, 1e-7);
  EXPECT_EQ(std::get<Adagrad>(optimizer_by_name("adagrad")).initial_accumulator_value, 0.1);
  EXPECT_EQ(std::get<Adadelta>(optimizer_by_name("adadelta")).learning_rate, 0.001);
  EXPECT_EQ(std::get<AdamW>(optimizer_by_name("adamw")).weight_decay, 0.004);
  EXPECT_EQ(std::get<Nadam>(optimizer_by_name("nadam")).schedule_decay, 0.004);
  EXPECT_EQ(std::get<LAMB>(optimizer_by_name("lamb")).epsilon, 1e-6);
  for (const char* name :
       {"sgd", "rmsprop", "adam", "adagrad", "adadelta", "adamw", "adamax", "nadam", "lars", "lamb"}) {
    EXPECT_EQ(optimizer_name(optimizer_by_name(name)), name);
  }
  EXPECT_EQ(optimizer_class(RMSprop{}), "RMSprop");
  EXPECT_THAT([] { optimizer_by_name("Adamm"); },
              ThrowsMessage<InvalidArgument>(AllOf(
                  HasSubstr("\"Adamm\""), HasSubstr("sgd, rmsprop, adam, adagrad"), HasSubstr("lamb"))));
}

TEST(OptimizerConfig, SlotsAreNamedAndOrderedAsInKeras) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(slot_names(SGD{}), Names{});
  EXPECT_EQ(slot_names(SGD{.momentum = 0.9}), Names{"momentum"});
  EXPECT_EQ(slot_names(RMSprop{}), Names{"rms"});
  EXPECT_EQ(slot_names(RMSprop{.momentum = 0.9}), (Names{"rms", "momentum"}));
  EXPECT_EQ(slot_names(RMSprop{.centered = true}), (Names{"rms", "mg"}));
  EXPECT_EQ(slot_names(RMSprop{.momentum = 0.9, .centered = true}), (Names{"rms", "momentum", "mg"}));
  EXPECT_EQ(slot_names(Adagrad{}), Names{"accumulator"});
  EXPECT_EQ(slot_names(Adadelta{}), (Names{"accum_grad", "accum_var"}));
  EXPECT_EQ(slot_names(Adam{}), (Names{"m", "v"}));
  EXPECT_EQ(slot_names(Adam{.amsgrad = true}), (Names{"m", "v", "vhat"}));
  EXPECT_EQ(slot_names(Nadam{}), (Names{"m", "v"}));
  EXPECT_EQ(slot_names(LARS{}), Names{"momentum"});
}

TEST(OptimizerConfig, DescriptionTellsEverySetting) {
  EXPECT_EQ(describe(SGD{.decay = 0.5}),
            "sgd learning_rate=0.01 momentum=0 nesterov=false decay=0.5 schedule=constant clipvalue=0 "
            "clipnorm=0 global_clipnorm=0");
  EXPECT_EQ(describe(RMSprop{.clip = {.global_clipnorm = 1.5}}),
            "rmsprop learning_rate=0.001 rho=0.9 momentum=0 epsilon=1e-07 centered=false decay=0 "
            "schedule=constant clipvalue=0 clipnorm=0 global_clipnorm=1.5");
  EXPECT_EQ(describe(Adam{.schedule = {.rule = StepSchedule{.every = 9}}, .clip = {.clipvalue = 2}}),
            "adam learning_rate=0.001 beta_1=0.9 beta_2=0.999 epsilon=1e-07 amsgrad=false decay=0 "
            "schedule=step:9:0.1 clipvalue=2 clipnorm=0 global_clipnorm=0");
  EXPECT_THAT(describe(AdamW{.exclude_from_weight_decay = {"bias", "beta"}}),
              HasSubstr("weight_decay=0.004 exclude=bias,beta"));
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
      {Adam{.clip = {.clipnorm = -2.0}}, "clipnorm is -2"},
      {Adam{.clip = {.global_clipnorm = 2.0, .clipnorm = 1.0}}, "only one of them"},
      {SGD{.decay = -1e-3}, "decay is -0.001"},
      {RMSprop{.momentum = 1.0}, "rmsprop: momentum is 1"},
      {Adagrad{.initial_accumulator_value = -0.1}, "initial_accumulator_value is -0.1"},
      {Adagrad{.epsilon = nan}, "adagrad: epsilon is nan"},
      {Adadelta{.rho = 1.0}, "adadelta: rho is 1"},
      {AdamW{.weight_decay = -0.1}, "adamw: weight_decay is -0.1"},
      {AdamW{.beta_1 = 2.0}, "adamw: beta_1 is 2"},
      {Adamax{.beta_2 = -1.0}, "adamax: beta_2 is -1"},
      {Nadam{.schedule_decay = -1.0}, "nadam: schedule_decay is -1"},
      {LARS{.trust_coefficient = 0.0}, "lars: trust_coefficient is 0"},
      {LARS{.momentum = 1.5}, "lars: momentum is 1.5"},
      {LAMB{.weight_decay = nan}, "lamb: weight_decay is nan"},
      {Adam{.clip = {.clipvalue = nan}}, "clipvalue is nan"},
  };
  for (const auto& [config, says] : cases) {
    EXPECT_THAT([&] { Optimizer(config, *backend); }, ThrowsMessage<InvalidArgument>(HasSubstr(says)));
  }
}

}  // namespace
}  // namespace rondo
