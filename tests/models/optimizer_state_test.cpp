#include "models/optimizer_state.h"

#include <gmock/gmock.h>

#include "models/layers/core.h"
#include "models/layers/linear.h"
#include "models/model.h"
#include "runtime/base/error.h"
#include "runtime/data/source.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// y = (sum of x, first of x) of a few fixed samples.
class Sums : public Source {
 public:
  std::string name() const override { return "sums"; }
  int64_t size() const override { return 12; }
  Shape input_shape() const override { return {3}; }
  Shape label_shape() const override { return {2}; }
  DType label_dtype() const override { return DType::kF32; }
  int64_t classes() const override { return 0; }
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override {
    for (size_t i = 0; i < 3; ++i) {
      input[i] = static_cast<float>((index * 5 + static_cast<int64_t>(i) * 7) % 11) / 11.0f;
    }
    auto* y = reinterpret_cast<float*>(label.data());
    y[0] = input[0] + input[1] + input[2];
    y[1] = input[0];
  }
  uint64_t digest() const override { return 1; }
};

Model make_model(const OptimizerConfig& optimizer) {
  Sequential model({layers::Input({.shape = {3}}),
                    layers::Dense{.units = 4, .activation = "tanh", .name = "a"},
                    layers::Dense{.units = 2, .name = "b"}});
  model.compile({.optimizer = optimizer, .loss = "mse"});
  return model;
}

std::vector<std::string> names_of(const OptimizerState& state) {
  std::vector<std::string> names;
  for (const OptimizerWeight& weight : state.weights) names.push_back(weight.name);
  return names;
}

TEST(OptimizerState, IsNamedAndOrderedAsInKerasFiles) {
  const Sums data;
  Model model = make_model(Adam{});
  EXPECT_EQ(model.optimizer_state().iterations, 0);
  EXPECT_TRUE(model.optimizer_state().weights.empty());
  model.fit(data, {.batch_size = 5, .epochs = 2});
  const OptimizerState state = model.optimizer_state();
  EXPECT_EQ(state.iterations, 6);
  EXPECT_EQ(names_of(state),
            (std::vector<std::string>{"Adam/a/kernel/m:0", "Adam/a/bias/m:0", "Adam/b/kernel/m:0",
                                      "Adam/b/bias/m:0", "Adam/a/kernel/v:0", "Adam/a/bias/v:0",
                                      "Adam/b/kernel/v:0", "Adam/b/bias/v:0"}));
  EXPECT_EQ(state.weights[0].shape, (Shape{3, 4}));
  EXPECT_EQ(state.weights[0].values.size(), 12u);
  EXPECT_GT(state.weights[4].values[0], 0.0f);

  Model nadam = make_model(Nadam{});
  nadam.fit(data, {.batch_size = 12});
  EXPECT_EQ(nadam.optimizer_state().weights[0].name, "Nadam/momentum_cache:0");
  EXPECT_NEAR(nadam.optimizer_state().weights[0].values[0], 0.9 * (1.0 - 0.5 * 0.999836735), 1e-6);
}

// Training that is cut in two, the second half in a model that was given weights and optimizer state.
TEST(OptimizerState, CarriesTrainingOverToAnotherModel) {
  const Sums data;
  for (const OptimizerConfig& optimizer :
       {OptimizerConfig(Adam{.learning_rate = 0.01, .amsgrad = true}), OptimizerConfig(Nadam{}),
        OptimizerConfig(SGD{.momentum = 0.9, .decay = 0.1}), OptimizerConfig(Adagrad{})}) {
    Model whole = make_model(optimizer), first = make_model(optimizer), second = make_model(optimizer);
    whole.fit(data, {.batch_size = 5, .epochs = 4, .shuffle = false});
    first.fit(data, {.batch_size = 5, .epochs = 2, .shuffle = false});
    second.set_weights(first.get_weights());
    second.set_optimizer_state(first.optimizer_state());
    EXPECT_EQ(names_of(second.optimizer_state()), names_of(first.optimizer_state()));
    second.fit(data, {.batch_size = 5, .epochs = 4, .initial_epoch = 2, .shuffle = false});
    EXPECT_EQ(whole.get_weights(), second.get_weights()) << optimizer_name(optimizer);
    EXPECT_EQ(second.optimizer_state().iterations, 12);

    // ... or in a model that has trained already.
    first.fit(data, {.batch_size = 5, .epochs = 1});
    first.set_weights(second.get_weights());
    first.set_optimizer_state(second.optimizer_state());
    whole.fit(data, {.batch_size = 5, .epochs = 5, .initial_epoch = 4, .shuffle = false});
    first.fit(data, {.batch_size = 5, .epochs = 5, .initial_epoch = 4, .shuffle = false});
    EXPECT_EQ(whole.get_weights(), first.get_weights()) << optimizer_name(optimizer);
  }
}

TEST(OptimizerState, RefusesWhatDoesNotFit) {
  const Sums data;
  Model model = make_model(Adam{});
  model.fit(data, {.batch_size = 12});
  OptimizerState state = model.optimizer_state();
  const auto set = [&] { model.set_optimizer_state(state); };
  state.weights[2].values.pop_back();
  EXPECT_THAT(set, ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("array 2"), HasSubstr("b/kernel"))));
  state.weights.pop_back();
  EXPECT_THAT(set, ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("8 arrays"), HasSubstr("7 were given"))));
  state.weights.clear();
  state.iterations = -1;
  EXPECT_THAT(set, ThrowsMessage<InvalidArgument>(HasSubstr("-1 iterations")));
  Sequential raw({layers::Input({.shape = {3}}), layers::Dense{.units = 1}});
  EXPECT_THAT([&] { raw.set_optimizer_state({}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("not compiled")));
}

}  // namespace
}  // namespace rondo
