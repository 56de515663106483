// Models called as layers.
#include <gmock/gmock.h>

#include "models/model.h"
#include "runtime/base/error.h"
#include "runtime/data/synthetic.h"
#include "tests/models/gradient_fixture.h"

namespace rondo::test {
namespace {

using ::testing::HasSubstr;
using NestedTest = GradientTest;

// dense tanh - batch normalization frozen or not is other tests' business - dense
Model tower(const std::string& name) {
  const auto in = layers::Input({.shape = {4}});
  auto x = layers::Dense{.units = 5, .activation = "tanh", .name = "a"}(in);
  x = layers::Dense{.units = 4, .name = "b"}(x);
  x = layers::Activation{.activation = "tanh"}(x);
  return Model({in}, {x}, {.name = name});
}

Twin called(const Model& model, const Twin& x) {
  return twin(model(x.place), [name = model.name(), x](Evaluation& e) {
    const auto layer = [&](const Array& in, const std::string& which) {
      const std::string path = name + "/" + which;
      return activated(dense(in, e.weights.at(path + "/kernel"), e.weights.at(path + "/bias")), "tanh");
    };
    return layer(layer(x.value(e), "a"), "b");
  });
}

TEST_F(NestedTest, CallsShareWeightsAndNamesMayRepeat) {
  const Twin a = input("a_in", {4});
  const Twin b = input("b_in", {4});
  const Model first = tower("first"), second = tower("second");
  Twin x = called(first, called(second, called(first, a)));
  x = concatenate({x, called(second, b)});
  check({a, b}, apply(layers::Dense{.units = 2, .name = "a"}, x));
}

TEST(Nested, CountsSummaryAndFreezing) {
  const Model inner = tower("tower");
  const auto in = layers::Input({.shape = {4}});
  const Model outer({in}, {layers::Dense{.units = 2}(inner(inner(in)))}, {.name = "outer"});
  EXPECT_EQ(outer.count_params(), 25 + 24 + 10);
  EXPECT_EQ(outer.graph().weights().size(), 6u);
  EXPECT_EQ(outer.graph().multiply_adds(), 2 * 40 + 8);
  EXPECT_THAT(outer.summary(), HasSubstr(" tower (Functional)"));
  inner.as_layer().layer()->set_trainable(false);
  EXPECT_EQ(outer.graph().count_params(true), 10);
}

TEST(Nested, TrainsTheInnerModelsWeights) {
  const Sequential inner({layers::Input({.shape = {28, 28, 1}}), layers::Flatten{},
                          layers::Dense{.units = 8, .activation = "relu"}},
                         {.name = "features"});
  Sequential outer({layers::Input({.shape = {28, 28, 1}}), inner.as_layer(),
                    layers::Dense{.units = 10, .activation = "softmax"}});
  const auto before = inner.get_weights();
  const SyntheticSource data({.size = 64});
  outer.compile({.optimizer = SGD{}, .loss = "sparse_categorical_crossentropy"});
  outer.fit(data, {.batch_size = 32});
  const auto after = inner.get_weights();
  EXPECT_NE(after, before);
  const auto of_outer = outer.get_weights();
  ASSERT_EQ(of_outer.size(), 4u);
  EXPECT_EQ(of_outer[0], after[0]);
  // The other way round, and back again: nobody trains in memory that it no longer has.
  Sequential again({layers::Input({.shape = {28, 28, 1}}), inner.as_layer(),
                    layers::Dense{.units = 10, .activation = "softmax"}},
                   {.name = "again"});
  again.compile({.optimizer = SGD{}, .loss = "sparse_categorical_crossentropy"});
  again.fit(data, {.batch_size = 32});
  EXPECT_NE(inner.get_weights(), after);
  EXPECT_EQ(outer.get_weights()[0], inner.get_weights()[0]);
  outer.fit(data, {.batch_size = 32});
  EXPECT_EQ(again.get_weights()[0], inner.get_weights()[0]);
}

TEST(Nested, WhatDoesNotFitIsRefused) {
  const Model inner = tower("tower");
  EXPECT_THROW(inner(layers::Input({.shape = {5}})), InvalidArgument);
  const auto in = layers::Input({.shape = {4}});
  EXPECT_THROW(inner({in, in}), InvalidArgument);
  const Model two({in}, {layers::Dense{.units = 2}(in), layers::Dense{.units = 2}(in)});
  EXPECT_THROW(two(in), Unavailable);
}

}  // namespace
}  // namespace rondo::test
