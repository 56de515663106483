// Files that real Keras wrote: models, weights and predictions come out as they went in.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/files.h"
#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/model.h"
#include "models/optimizer_state.h"
#include "runtime/base/error.h"
#include "runtime/data/array_source.h"
#include "tests/keras/golden.h"

namespace rondo {
namespace {

using test::golden;
using test::GoldenArrays;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

std::vector<float> predict(Model& model, const GoldenArrays& io) {
  const std::vector<int64_t>& shape = io.shape("x");
  const Shape sample(std::span<const int64_t>(shape).subspan(1));
  const ArraySource source({.input_shape = sample,
                            .input = io.values("x"),
                            .labels = std::vector<int32_t>(static_cast<size_t>(shape[0]), 0)});
  return model.predict(source);
}

void expect_model(Model& model, const std::string& name) {
  const GoldenArrays io(name + ".io.h5");
  EXPECT_THAT(model.get_weights(), testing::ElementsAreArray(io.list("weight")));
  EXPECT_THAT(predict(model, io), Pointwise(FloatNear(1e-5f), io.values("y")));
}

struct Case {
  const char* model;
  const char* dialect;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.model << "." << c.dialect; }
  std::string file(const char* ending) const { return std::string(model) + "." + dialect + ending; }
};

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, WholeModelInHdf5) {
  Model model = load_model(golden(GetParam().file(".h5")));
  expect_model(model, GetParam().file(""));
}

TEST_P(Golden, Archive) {
  Model model = load_model(golden(GetParam().file(".keras")));
  expect_model(model, GetParam().file(""));
}

TEST_P(Golden, JsonAndWeights) {
  const bool old = std::strcmp(GetParam().dialect, "tf") == 0;
  Model model = model_from_json(test::read_text(golden(GetParam().file(".json"))));
  model.load_weights(golden(GetParam().file(old ? ".only.h5" : ".weights.h5")));
  expect_model(model, GetParam().file(""));
}

// What we write of a model that we read says the same as what we read.
TEST_P(Golden, SurvivesOurOwnFiles) {
  const test::Folder folder;
  Model model = load_model(golden(GetParam().file(".h5")));
  const std::vector<std::pair<const char*, KerasDialect>> ways{{"m.h5", KerasDialect::kTfKeras},
                                                               {"m.keras", KerasDialect::kTfKeras},
                                                               {"m3.keras", KerasDialect::kKeras3}};
  for (const auto& [name, dialect] : ways) {
    model.save(folder.file(name), {.dialect = dialect});
    Model again = load_model(folder.file(name));
    EXPECT_EQ(again.to_json(), model.to_json());
    expect_model(again, GetParam().file(""));
  }
  for (const char* name : {"w.h5", "w.weights.h5"}) {
    model.save_weights(folder.file(name));
    Model again = model_from_json(model.to_json(2, KerasDialect::kKeras3));
    again.load_weights(folder.file(name));
    EXPECT_EQ(again.get_weights(), model.get_weights());
  }
  EXPECT_THAT(folder.names(), testing::ElementsAre("m.h5", "m.keras", "m3.keras", "w.h5", "w.weights.h5"));
}

INSTANTIATE_TEST_SUITE_P(
    Models, Golden,
    testing::Values(Case{"mlp", "tf"}, Case{"mlp", "k3"}, Case{"chain_of_images", "tf"},
                    Case{"chain_of_images", "k3"}, Case{"graph", "tf"}, Case{"graph", "k3"},
                    Case{"separable", "tf"}, Case{"separable", "k3"}, Case{"lstm", "tf"}, Case{"lstm", "k3"},
                    Case{"gru", "tf"}, Case{"gru", "k3"}, Case{"masked", "tf"}, Case{"masking", "tf"},
                    Case{"bidirectional", "tf"}, Case{"bidirectional", "k3"}, Case{"limited", "tf"},
                    Case{"limited", "k3"}, Case{"attention", "tf"}, Case{"attention", "k3"},
                    Case{"nested", "tf"}, Case{"nested", "k3"}),
    [](const auto& each) { return std::string(each.param.model) + "_" + each.param.dialect; });

TEST(GoldenWeights, OfTheParallelModelLoadIntoTheTemplate) {
  Model model = model_from_json(test::read_text(golden("graph.tf.json")));
  model.load_weights(golden("graph.parallel.h5"));
  EXPECT_EQ(model.get_weights(), GoldenArrays("graph.parallel.io.h5").list("weight"));
}

TEST(GoldenWeights, WithTextsOfFixedLength) {
  Model model = model_from_json(test::read_text(golden("mlp.tf.json")));
  model.load_weights(golden("mlp.fixed.h5"));
  EXPECT_EQ(model.get_weights(), GoldenArrays("mlp.tf.io.h5").list("weight"));
}

TEST(GoldenWeights, WithNamesInPieces) {
  Model model = Sequential({layers::Input({.shape = {2}}), layers::Dense{.units = 2}});
  const auto before = model.get_weights();
  model.load_weights(golden("long_names.h5"));
  EXPECT_NE(model.get_weights(), before);
}

TEST(GoldenWeights, ByName) {
  Model model = model_from_json(test::read_text(golden("graph.tf.json")));
  const auto fresh = model.get_weights();
  auto in = layers::Input({.shape = {8, 8, 4}});
  auto x = layers::Conv2D{.filters = 4, .kernel_size = {3, 3}, .padding = "same", .name = "shared"}(in);
  auto y = layers::Conv2D{.filters = 4, .kernel_size = {1, 1}, .name = "other"}(x);
  Model part({in}, {y});
  const auto before = part.get_weights();
  part.load_weights(golden("graph.tf.only.h5"), {.by_name = true});
  const auto after = part.get_weights();
  const auto all = GoldenArrays("graph.tf.io.h5").list("weight");
  EXPECT_THAT(all, testing::Contains(after[0]));
  EXPECT_EQ(after[2], before[2]);
  EXPECT_THAT([&] { part.load_weights(golden("mlp.tf.only.h5"), {.by_name = true}); },
              ThrowsMessage<FileError>(HasSubstr("no layer with weights has the name")));
}

struct Training {
  const char* name;
  OptimizerConfig optimizer;
};

// Full batches in order, so that every number follows from the update rule, the layers and the loss.
TEST(GoldenTraining, ThreeStepsOfEachOptimizer) {
  const std::vector<Training> all{
      {"sgd", SGD{.learning_rate = 0.1}},
      {"sgd_momentum", SGD{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}},
      {"rmsprop", RMSprop{.learning_rate = 0.01}},
      {"rmsprop_centered", RMSprop{.learning_rate = 0.01, .momentum = 0.5, .centered = true}},
      {"adagrad", Adagrad{.learning_rate = 0.05}},
      {"adadelta", Adadelta{.learning_rate = 1.0}},
      {"adam", Adam{.learning_rate = 0.01}},
      {"amsgrad", Adam{.learning_rate = 0.01, .amsgrad = true}},
      {"adamax", Adamax{.learning_rate = 0.01}},
      {"nadam", Nadam{.learning_rate = 0.01}},
      // As Keras has them since 2.11.
      {"new_rmsprop", RMSprop{.learning_rate = 0.01, .epsilon_inside = true}},
      {"new_adagrad", Adagrad{.learning_rate = 0.05, .epsilon_inside = true}},
      {"new_nadam", Nadam{.learning_rate = 0.01, .schedule_decay = 1.0}},
      {"adamw", AdamW{.learning_rate = 0.01, .weight_decay = 0.1}}};
  for (const auto& [name, optimizer] : all) {
    const GoldenArrays run(std::string("train_") + name + ".h5");
    const ArraySource source(
        {.input_shape = {5}, .input = run.values("x"), .label_shape = {3}, .labels = run.values("y")});
    Model model = load_model(golden("trained_adam.tf.h5"), {.compile = false});
    model.set_weights(run.list("before"));
    model.compile({.optimizer = optimizer, .loss = "categorical_crossentropy"});
    const History history = model.fit(source, {.batch_size = 12, .epochs = 3, .shuffle = false});
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(history.at("loss")[i], static_cast<double>(run.values("losses")[i]), 1e-5) << name;
    }
    const auto after = model.get_weights();
    const auto wanted = run.list("after");
    ASSERT_EQ(after.size(), wanted.size());
    for (size_t i = 0; i < after.size(); ++i) {
      ASSERT_EQ(after[i].size(), wanted[i].size());
      for (size_t j = 0; j < after[i].size(); ++j) {
        // What is reached is 4.4e-7 at most.
        EXPECT_NEAR(after[i][j], wanted[i][j], 1e-6f * std::max(1.0f, std::abs(wanted[i][j])))
            << name << ", weight " << i << ", element " << j;
      }
    }
  }
}

// Constraints change the weights behind the update; penalties on results are in loss and gradient.
TEST(GoldenTraining, OfALimitedModel) {
  const GoldenArrays run("train_limited.h5");
  const ArraySource source(
      {.input_shape = {5, 5, 2}, .input = run.values("x"), .label_shape = {3}, .labels = run.values("y")});
  Model model = load_model(golden("limited.tf.h5"), {.compile = false});
  model.set_weights(run.list("before"));
  model.compile({.optimizer = SGD{.learning_rate = 0.1}, .loss = "categorical_crossentropy"});
  const History history = model.fit(source, {.batch_size = 12, .epochs = 3, .shuffle = false});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(history.at("loss")[i], static_cast<double>(run.values("losses")[i]), 1e-5) << i;
  }
  const auto after = model.get_weights();
  const auto wanted = run.list("after");
  ASSERT_EQ(after.size(), wanted.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_THAT(after[i], Pointwise(FloatNear(1e-5f), wanted[i])) << "weight " << i;
  }
}

// Saved by Keras after two steps; ours is the third one, with the optimizer's state of the first two.
TEST(GoldenTraining, GoesOnWhereKerasStopped) {
  const test::Folder folder;
  for (const std::string file :
       {"adam.tf.h5", "sgd_momentum.tf.h5", "rmsprop.tf.h5", "adamw.tf.h5", "adamw.keras",
        "new_rmsprop.keras", "new_adagrad.keras", "new_nadam.keras"}) {
    const std::string name = file.substr(0, file.find('.'));
    const GoldenArrays run("train_" + name + ".h5");
    const ArraySource source(
        {.input_shape = {5}, .input = run.values("x"), .label_shape = {3}, .labels = run.values("y")});
    const auto expect_third_step = [&](Model& model) {
      const History history = model.fit(source, {.batch_size = 12, .shuffle = false});
      EXPECT_NEAR(history.at("loss")[0], static_cast<double>(run.values("losses")[2]), 1e-5) << name;
      const auto after = model.get_weights();
      const auto wanted = run.list("after");
      for (size_t i = 0; i < after.size(); ++i) {
        EXPECT_THAT(after[i], Pointwise(FloatNear(1e-5f), wanted[i])) << name << ", weight " << i;
      }
    };
    const std::vector<std::pair<std::string, KerasDialect>> ways{{"again.h5", KerasDialect::kTfKeras},
                                                                 {"again.keras", KerasDialect::kTfKeras},
                                                                 {"again3.keras", KerasDialect::kKeras3}};
    Model model = load_model(golden("trained_" + file));
    for (const auto& [path, dialect] : ways) model.save(folder.file(path), {.dialect = dialect});
    expect_third_step(model);
    for (const auto& [path, dialect] : ways) {
      SCOPED_TRACE(file + " by way of " + path);
      Model again = load_model(folder.file(path));
      EXPECT_EQ(describe(again.compile_options()->optimizer), describe(model.compile_options()->optimizer));
      EXPECT_EQ(again.optimizer_state().iterations, 2);
      expect_third_step(again);
      again.save(folder.file("after.h5"));
      EXPECT_EQ(load_model(folder.file("after.h5")).optimizer_state().iterations, 3);
    }
  }
}

// Two inputs and three outputs, one of which has no loss; sample weights, some for each time step; what Keras
// reported under which name, and in which order.
class GoldenHeads : public testing::Test {
 protected:
  GoldenHeads()
      : run("train_heads.h5"),
        source(ArraysData{.inputs = {{"numbers", {4}, run.values("x numbers")},
                                     {"steps_in", {5, 3}, run.values("x steps_in")}},
                          .labels = {{"kind", {3}, run.values("y kind")},
                                     {"each", {5, 2}, run.values("y each")},
                                     {"flag", {1}, run.values("y flag")}}}),
        weights(std::map<std::string, std::vector<float>>{{"kind", run.values("w kind")},
                                                          {"each", run.values("w each")}}) {}

  using Losses = std::map<std::string, LossConfig>;
  using Metrics = std::map<std::string, std::vector<MetricConfig>>;
  static CompileOptions compiled() {
    return {.optimizer = Adam{.learning_rate = 0.01},
            .loss = Losses{{"kind", "categorical_crossentropy"}, {"each", "mse"}},
            .loss_weights = std::map<std::string, double>{{"each", 0.3}},
            .metrics = Metrics{{"kind", {"accuracy"}}, {"each", {"mae"}}, {"flag", {"accuracy"}}},
            .weighted_metrics =
                Metrics{{"kind", {"accuracy", "categorical_crossentropy"}}, {"each", {"mae", "mse"}}}};
  }
  void expect_evaluation(Model& model) const {
    const Logs logs = model.evaluate(source, 5, weights);
    const auto& wanted = run.values("evaluated");
    ASSERT_EQ(logs.size(), wanted.size());
    for (size_t i = 0; i < logs.size(); ++i) {
      EXPECT_NEAR(logs[i].second, static_cast<double>(wanted[i]), 1e-5) << logs[i].first;
    }
  }

  const GoldenArrays run;
  const ArraySource source;
  const SampleWeights weights;
};

TEST_F(GoldenHeads, TrainAndReportAsInKeras) {
  Model model = load_model(golden("trained_heads.tf.h5"), {.compile = false});
  model.set_weights(run.list("before"));
  model.compile(compiled());
  const History history = model.fit(
      source,
      {.batch_size = 5, .epochs = 3, .shuffle = false, .validation_data = &source, .sample_weight = weights});
  const auto values = run.list("value");
  const auto names = run.names("value");  // "value00 loss"
  ASSERT_EQ(history.history.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(history.history[i].first, names[i].substr(8));
    for (size_t epoch = 0; epoch < 3; ++epoch) {
      EXPECT_NEAR(history.history[i].second[epoch], static_cast<double>(values[i][epoch]), 1e-5) << names[i];
    }
  }
  const auto after = model.get_weights();
  const auto wanted = run.list("after");
  ASSERT_EQ(after.size(), wanted.size());
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_THAT(after[i], Pointwise(FloatNear(1e-5f), wanted[i])) << i;
  expect_evaluation(model);
  const auto outputs = model.predict_outputs(source, 5);
  const auto predicted = run.list("predicted");
  ASSERT_EQ(outputs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_THAT(outputs[i], Pointwise(FloatNear(1e-5f), predicted[i])) << i;
}

// Losses, their weights and metrics come from the file; ours say the same.
TEST_F(GoldenHeads, AreCompiledAsTheFileSays) {
  const test::Folder folder;
  Model model = load_model(golden("trained_heads.tf.h5"));
  expect_evaluation(model);
  model.save(folder.file("again.h5"));
  Model again = load_model(folder.file("again.h5"));
  expect_evaluation(again);
  EXPECT_EQ(again.optimizer_state().iterations, 9);

  Model lists = load_model(golden("trained_heads.tf.h5"), {.compile = false});
  lists.compile({.loss = std::vector<LossConfig>{"mse", {"huber", {.delta = 0.5}}, ""},
                 .loss_weights = {1.0, 0.5, 2.0},
                 .metrics = {"mae"},
                 .weighted_metrics = std::vector<std::vector<MetricConfig>>{{}, {"mae"}, {}}});
  const Logs expected = lists.evaluate(source, 5, weights);
  lists.save(folder.file("lists.h5"));
  Model read = load_model(folder.file("lists.h5"));
  EXPECT_EQ(read.evaluate(source, 5, weights), expected);
}

TEST(GoldenTraining, CompilesAsTheFileSays) {
  const GoldenArrays run("train_adam.h5");
  Model model = load_model(golden("trained_adam.tf.h5"));
  const ArraySource source(
      {.input_shape = {5}, .input = run.values("x"), .label_shape = {3}, .labels = run.values("y")});
  const Logs logs = model.evaluate(source);
  ASSERT_EQ(logs.size(), 2u);
  EXPECT_EQ(logs[1].first, "accuracy");
}

}  // namespace
}  // namespace rondo
