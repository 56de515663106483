// Models with several inputs and outputs: names, sums, weights and what is refused. What Keras gives for one
// is in tests/keras.
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>

#include "models/graph/graph.h"
#include "models/graph/graph_network.h"
#include "models/layers/core.h"
#include "models/layers/linear.h"
#include "models/layers/merge.h"
#include "models/losses/losses.h"
#include "models/model.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/data/array_source.h"
#include "runtime/data/weighted.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Losses = std::map<std::string, LossConfig>;
using Metrics = std::map<std::string, std::vector<MetricConfig>>;

constexpr int64_t kRows = 23;

float wave(int64_t i, int64_t period) {
  return static_cast<float>((i * 37) % period) / static_cast<float>(period) - 0.5f;
}
std::vector<float> waves(int64_t count, int64_t period) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = wave(i, period);
  return values;
}

// A trunk with a main head of classes, an auxiliary head of numbers in four steps, and a head without a loss.
Model heads() {
  const auto a = layers::Input({.shape = {3}, .name = "a"});
  const auto steps = layers::Input({.shape = {4, 2}, .name = "steps"});
  const auto inner = layers::Dense{.units = 3, .activation = "tanh", .name = "inner"}(steps);
  auto x = layers::Concatenate{}({layers::Flatten{}(inner), a});
  x = layers::Dense{.units = 5, .activation = "tanh", .name = "trunk"}(x);
  return Model({a, steps}, {layers::Dense{.units = 3, .activation = "softmax", .name = "main"}(x),
                            layers::Dense{.units = 2, .name = "aux"}(inner),
                            layers::Dense{.units = 1, .activation = "sigmoid", .name = "flag"}(x)});
}

std::vector<ArrayInput> inputs() {
  return {{.name = "a", .shape = {3}, .values = waves(kRows * 3, 101)},
          {.name = "steps", .shape = {4, 2}, .values = waves(kRows * 8, 89)}};
}
std::vector<ArrayLabel> labels() {
  std::vector<int32_t> classes(kRows);
  std::vector<float> flags(kRows);
  for (int64_t i = 0; i < kRows; ++i) {
    classes[static_cast<size_t>(i)] = static_cast<int32_t>(i * 53 % 7 % 3);
    flags[static_cast<size_t>(i)] = static_cast<float>(i % 3 == 1);
  }
  return {{.name = "main", .shape = {}, .values = classes, .classes = 3},
          {.name = "aux", .shape = {4, 2}, .values = waves(kRows * 8, 67)},
          {.name = "flag", .shape = {1}, .values = flags}};
}
const ArraySource& data() {
  static const ArraySource source(ArraysData{.name = "heads", .inputs = inputs(), .labels = labels()});
  return source;
}

CompileOptions compiled() {
  return {
      .optimizer = Adam{.learning_rate = 0.01},
      .loss = Losses{{"main", "sparse_categorical_crossentropy"}, {"aux", "mse"}},
      .loss_weights = std::map<std::string, double>{{"aux", 0.25}},
      .metrics = Metrics{{"main", {"accuracy"}}, {"flag", {"accuracy", "auc"}}},
      .weighted_metrics = Metrics{{"main", {"accuracy"}}, {"aux", {"mae", "rmse"}}, {"flag", {"precision"}}}};
}
SampleWeights weights() {
  std::vector<float> main(kRows), aux(kRows * 4), flag(kRows);
  for (size_t i = 0; i < aux.size(); ++i) aux[i] = static_cast<float>(i % 5) * 0.5f;
  for (size_t i = 0; i < main.size(); ++i) main[i] = static_cast<float>(i % 4);
  for (size_t i = 0; i < flag.size(); ++i) flag[i] = static_cast<float>(i % 3) + 0.5f;
  return std::map<std::string, std::vector<float>>{{"main", main}, {"aux", aux}, {"flag", flag}};
}

std::vector<std::string> names_of(const History& history) {
  std::vector<std::string> names;
  for (const auto& [name, values] : history.history) names.push_back(name);
  return names;
}

double value_of(const Logs& logs, const std::string& name) {
  for (const auto& [known, value] : logs) {
    if (known == name) return value;
  }
  ADD_FAILURE() << "no " << name;
  return 0.0;
}

TEST(Outputs, AreReportedUnderTheNamesOfKeras) {
  Model model = heads();
  model.compile(compiled());
  const History history = model.fit(data(), {.batch_size = 8, .validation_split = 0.3});
  EXPECT_THAT(
      names_of(history),
      ElementsAre("loss", "main_loss", "aux_loss", "main_accuracy", "main_weighted_accuracy", "aux_mae",
                  "aux_rmse", "flag_accuracy", "flag_auc", "flag_precision", "val_loss", "val_main_loss",
                  "val_aux_loss", "val_main_accuracy", "val_main_weighted_accuracy", "val_aux_mae",
                  "val_aux_rmse", "val_flag_accuracy", "val_flag_auc", "val_flag_precision"));
  // One setting for all outputs, and lists.
  const auto a = layers::Input({.shape = {3}, .name = "a"});
  Model two({a}, {layers::Dense{.units = 2, .name = "x"}(a), layers::Dense{.units = 1, .name = "y"}(a)});
  const ArraySource source(
      ArraysData{.inputs = {{.shape = {3}, .values = waves(12, 7)}},
                 .labels = {{.shape = {2}, .values = waves(8, 5)}, {.shape = {1}, .values = waves(4, 3)}}});
  two.compile({.loss = "mse", .metrics = {"mae"}});
  EXPECT_THAT(names_of(two.fit(source)), ElementsAre("loss", "x_loss", "y_loss", "x_mae", "y_mae"));
  two.compile({.loss = std::vector<LossConfig>{"mse", ""},
               .metrics = std::vector<std::vector<MetricConfig>>{{}, {"mae"}}});
  EXPECT_THAT(names_of(two.fit(source)), ElementsAre("loss", "x_loss", "y_mae"));
}

// The total is what its parts say, and its gradient is the weighted sum of theirs.
TEST(Outputs, AddUpToTheLossAndItsGradient) {
  const auto device = make_cpu_device(1);
  const auto backend = make_cpu_backend(*device);
  const auto gradients = [&](const CompileOptions& options, Logs* logs) {
    Model model = heads();
    model.compile(options);
    const auto before = model.get_weights();
    model.fit(data(), {.batch_size = kRows, .shuffle = false, .sample_weight = weights()});
    auto after = model.get_weights();
    for (size_t w = 0; w < after.size(); ++w) {
      for (size_t i = 0; i < after[w].size(); ++i) after[w][i] = before[w][i] - after[w][i];
    }
    model.set_weights(before);
    if (logs != nullptr) *logs = model.evaluate(data(), 5, weights());
    return after;
  };
  const SGD sgd{.learning_rate = 1.0};
  Logs logs;
  const auto both =
      gradients({.optimizer = sgd, .loss = compiled().loss, .loss_weights = {2.0, 0.25, 1.0}}, &logs);
  EXPECT_NEAR(value_of(logs, "loss"), 2.0 * value_of(logs, "main_loss") + 0.25 * value_of(logs, "aux_loss"),
              1e-12);
  const auto main =
      gradients({.optimizer = sgd, .loss = Losses{{"main", "sparse_categorical_crossentropy"}}}, nullptr);
  const auto aux = gradients({.optimizer = sgd, .loss = Losses{{"aux", "mse"}}}, nullptr);
  double moved = 0.0;
  for (size_t w = 0; w < both.size(); ++w) {
    for (size_t i = 0; i < both[w].size(); ++i) {
      EXPECT_NEAR(both[w][i], 2.0f * main[w][i] + 0.25f * aux[w][i], 2e-6f) << w << ", " << i;
      moved += std::abs(static_cast<double>(both[w][i]));
    }
  }
  EXPECT_GT(moved, 0.1);
  const auto& untrained = both.back();  // the head without a loss
  EXPECT_THAT(untrained, testing::Each(0.0f));
}

// Central differences of the loss, in every weight of every head.
TEST(Outputs, GradientsAreThoseOfTheLoss) {
  Model model = heads();
  CompileOptions options = compiled();
  options.optimizer = SGD{.learning_rate = 1.0};
  model.compile(options);
  const auto before = model.get_weights();
  const auto loss_at = [&](size_t w, size_t i, float step) {
    auto moved = before;
    moved[w][i] += step;
    model.set_weights(moved);
    return value_of(model.evaluate(data(), kRows, weights()), "loss");
  };
  model.fit(data(), {.batch_size = kRows, .shuffle = false, .sample_weight = weights()});
  const auto after = model.get_weights();
  constexpr float kStep = 0.02f;
  for (size_t w = 0; w < before.size(); ++w) {
    for (size_t i = 0; i < before[w].size(); i += 2) {
      const double slope =
          (loss_at(w, i, kStep) - loss_at(w, i, -kStep)) / (2.0 * static_cast<double>(kStep));
      EXPECT_NEAR(static_cast<double>(before[w][i] - after[w][i]), slope, 5e-4) << w << ", " << i;
    }
  }
}

// Uneven shares and empty ones; predictions in the order of the data.
TEST(Outputs, OfRanksAreThoseOfOne) {
  struct Seen {
    std::vector<std::pair<std::string, std::vector<double>>> history;
    Logs evaluation;
    std::vector<std::vector<float>> predictions, weights;
  };
  const auto train = [](int ranks) {
    std::mutex mutex;
    std::vector<Seen> of_ranks;
    run_ranks(ranks, [&](Communicator& comm) {
      const auto device = make_cpu_device(1);
      const auto backend = make_cpu_backend(*device);
      Model own = heads();
      Model model = multi_gpu_model(own, comm, *backend);
      model.compile(compiled());
      const History history = model.fit(
          data(), {.batch_size = 5, .epochs = 3, .validation_split = 0.2, .sample_weight = weights()});
      Seen seen{history.history, model.evaluate(data(), 7, weights()), model.predict_outputs(data(), 7),
                own.get_weights()};
      const std::lock_guard lock(mutex);
      of_ranks.push_back(std::move(seen));
    });
    return of_ranks;
  };
  const Seen alone = train(1).front();
  ASSERT_EQ(alone.predictions.size(), 3u);
  EXPECT_EQ(alone.predictions[0].size(), static_cast<size_t>(kRows * 3));
  EXPECT_EQ(alone.predictions[1].size(), static_cast<size_t>(kRows * 8));
  const Seen again = train(1).front();
  EXPECT_EQ(again.weights, alone.weights);
  EXPECT_EQ(again.evaluation, alone.evaluation);
  for (const int ranks : {2, 3, 7}) {
    for (const Seen& seen : train(ranks)) {
      ASSERT_EQ(seen.history.size(), alone.history.size());
      for (size_t i = 0; i < alone.history.size(); ++i) {
        EXPECT_EQ(seen.history[i].first, alone.history[i].first);
        EXPECT_THAT(seen.history[i].second,
                    testing::Pointwise(testing::DoubleNear(1e-5), alone.history[i].second))
            << alone.history[i].first << " of " << ranks;
      }
      for (size_t i = 0; i < alone.evaluation.size(); ++i) {
        EXPECT_NEAR(seen.evaluation[i].second, alone.evaluation[i].second, 1e-5) << alone.evaluation[i].first;
      }
      for (size_t i = 0; i < alone.predictions.size(); ++i) {
        EXPECT_THAT(seen.predictions[i], testing::Pointwise(testing::FloatNear(1e-5f), alone.predictions[i]));
      }
    }
  }
}

// By name in any order, with more than is asked for; by place with labels of every output or of those
// trained.
TEST(Outputs, TakeTheirDataByNameOrByPlace) {
  const auto evaluate = [](std::vector<ArrayInput> in, std::vector<ArrayLabel> out) {
    const ArraySource source(ArraysData{.inputs = std::move(in), .labels = std::move(out)});
    Model model = heads();
    model.compile({.loss = compiled().loss});
    return model.evaluate(source, 6);
  };
  const Logs expected = evaluate(inputs(), labels());
  auto in = inputs();
  auto out = labels();
  std::swap(in[0], in[1]);
  std::swap(out[0], out[2]);
  EXPECT_EQ(evaluate(in, out), expected);
  const auto unnamed = [](auto arrays) {
    for (auto& array : arrays) array.name.clear();
    return arrays;
  };
  EXPECT_EQ(evaluate(unnamed(inputs()), unnamed(labels())), expected);
  out = unnamed(labels());
  out.pop_back();
  EXPECT_EQ(evaluate(unnamed(inputs()), out), expected);
}

TEST(Outputs, RefuseWhatDoesNotFit) {
  const auto compile = [](CompileOptions options) {
    return [options = std::move(options)] { heads().compile(options); };
  };
  EXPECT_THAT(compile({.loss = std::vector<LossConfig>{"mse", "mse"}}),
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("loss is a list for 2 outputs"), HasSubstr("\"flag\""))));
  EXPECT_THAT(compile({.loss = Losses{{"mian", "mse"}}}),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"mian\""), HasSubstr("\"main\", \"aux\""))));
  EXPECT_THAT(compile({.loss = Losses{}}), ThrowsMessage<InvalidArgument>(HasSubstr("no loss is given")));
  EXPECT_THAT(
      compile({.loss = "mse", .loss_weights = {1.0, 2.0}}),
      ThrowsMessage<InvalidArgument>(HasSubstr("loss_weights is a list for 2 outputs; the model has 3")));
  EXPECT_THAT(compile({.loss = "mse", .loss_weights = {1.0, NAN, 1.0}}),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"aux\""), HasSubstr("finite"))));
  EXPECT_THAT(compile({.loss = "mse", .metrics = Metrics{{"head", {"mae"}}}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("metrics is given for an output \"head\"")));
  EXPECT_THAT(compile({.loss = "mse", .metrics = Metrics{{"aux", {"maee"}}}}),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("output \"aux\""), HasSubstr("maee"))));
  EXPECT_THAT(compile({.loss = std::vector<LossConfig>{"mse", {"mse", {.reduction = Reduction::kSum}}, ""}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("different reductions")));

  Model model = heads();
  EXPECT_THAT([&] { model.fit(data()); }, ThrowsMessage<InvalidArgument>(HasSubstr("is not compiled")));
  EXPECT_THAT([&] { model.evaluate(data()); }, ThrowsMessage<InvalidArgument>(HasSubstr("is not compiled")));
  EXPECT_THAT([&] { model.predict(data()); }, ThrowsMessage<InvalidArgument>(HasSubstr("predict_outputs")));
  model.compile(compiled());
  const auto fit = [&](std::vector<ArrayInput> in, std::vector<ArrayLabel> out,
                       const ModelFitOptions& options = {}) {
    const ArraySource source(ArraysData{.name = "given", .inputs = std::move(in), .labels = std::move(out)});
    model.fit(source, options);
  };
  auto out = labels();
  out[1].name = "auxiliary";
  EXPECT_THAT([&] { fit(inputs(), out); }, ThrowsMessage<InvalidArgument>(AllOf(
                                               HasSubstr("no labels for \"aux\""), HasSubstr("auxiliary"))));
  out = labels();
  for (ArrayLabel& label : out) label.name.clear();
  out.resize(2);
  EXPECT_THAT([&] { fit(inputs(), out); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("3 labels (main, aux, flag)"), HasSubstr("given has 2"))));
  out = labels();
  out[1].shape = {8};
  EXPECT_THAT([&] { fit(inputs(), out); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("output \"aux\""), HasSubstr("(4, 2)"), HasSubstr("(8,)"))));
  auto in = inputs();
  in.pop_back();
  for (ArrayInput& input : in) input.name.clear();
  EXPECT_THAT([&] { fit(in, labels()); }, ThrowsMessage<InvalidArgument>(AllOf(
                                              HasSubstr("2 inputs (a, steps)"), HasSubstr("given has 1"))));
  in = inputs();
  in[1].shape = {2, 4};
  EXPECT_THAT([&] { fit(in, labels()); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("input \"steps\""), HasSubstr("(2, 4)"))));
  EXPECT_THAT(
      [&] {
        fit(inputs(), labels(), {.class_weight = {{0, 1.0}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("class_weight is for models with one output")));
  using ByName = std::map<std::string, std::vector<float>>;
  EXPECT_THAT(
      [&] {
        fit(inputs(), labels(), {.sample_weight = ByName{{"b", {1.0f}}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("sample_weight is given for an output \"b\"")));
  EXPECT_THAT(
      [&] {
        fit(inputs(), labels(), {.sample_weight = ByName{{"aux", std::vector<float>(kRows * 3, 1.0f)}}});
      },
      ThrowsMessage<InvalidArgument>(
          AllOf(HasSubstr("69 weights"), HasSubstr("aux labels of shape (4, 2)"))));
  EXPECT_THAT(
      [&] {
        fit(inputs(), labels(), {.sample_weight = ByName{{"aux", std::vector<float>(kRows * 8, 1.0f)}}});
      },
      ThrowsMessage<InvalidArgument>(
          AllOf(HasSubstr("output \"aux\""), HasSubstr("weights of shape (4, 2)"))));
  EXPECT_THAT(
      [&] { ArraySource(ArraysData{.inputs = inputs(), .labels = {{.shape = {}, .values = waves(7, 5)}}}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("23 samples have 7 labels")));
}

// One output, weights in its time steps, and metrics that count them.
TEST(TemporalWeights, WeighLossesAndWeightedMetrics) {
  Sequential model({layers::Input({.shape = {2, 1}}), layers::Dense{.units = 1, .use_bias = false}});
  model.set_weights({{1.0f}});
  model.compile({.optimizer = SGD{.learning_rate = 0.0},
                 .loss = "mse",
                 .metrics = {"mae"},
                 .weighted_metrics = {"mae", {"binary_accuracy", {.threshold = 0.25}}, "recall"}});
  const ArraySource source({.input_shape = {2, 1},
                            .input = std::vector<float>{1, 2, 3, 0},
                            .label_shape = {2, 1},
                            .labels = std::vector<float>{0, 0, 1, 1}});
  const std::vector<float> temporal{1, 0, 2, 0.5f};
  const History history = model.fit(source, {.batch_size = 1, .shuffle = false, .sample_weight = temporal});
  EXPECT_THAT(names_of(history), ElementsAre("loss", "mae", "weighted_mae", "binary_accuracy", "recall"));
  // Squared errors 1, 4, 4, 1, and absolute ones 1, 2, 2, 1.
  EXPECT_NEAR(history.at("loss")[0], (1.0 + 0.0 + 8.0 + 0.5) / 4.0, 1e-6);
  EXPECT_NEAR(history.at("mae")[0], 6.0 / 4.0, 1e-6);
  EXPECT_NEAR(history.at("weighted_mae")[0], (1.0 + 4.0 + 0.5) / 3.5, 1e-6);
  EXPECT_NEAR(history.at("binary_accuracy")[0], 2.0 / 3.5, 1e-6);
  EXPECT_NEAR(history.at("recall")[0], 2.0 / 2.5, 1e-6);
  const Logs by_sample = model.evaluate(source, 2, {1.0f, 3.0f});
  EXPECT_NEAR(value_of(by_sample, "loss"), (5.0 + 3.0 * 5.0) / 4.0, 1e-6);
  EXPECT_NEAR(value_of(by_sample, "weighted_mae"), (3.0 + 3.0 * 3.0) / 8.0, 1e-6);
  const Logs nothing = model.evaluate(source, 2, {0.0f, 0.0f});
  EXPECT_EQ(value_of(nothing, "weighted_mae"), 0.0);
  EXPECT_THAT([&] { model.fit(source, {.sample_weight = std::vector<float>(6, 1.0f)}); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("6 weights"), HasSubstr("2 samples"))));
  EXPECT_THAT(
      [&] {
        model.fit(source, {.class_weight = {{0, 1.0}, {1, 1.0}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("labels of shape (2, 1)")));
}

// A loss weight of the only output scales its loss and gradient, not the penalty.
TEST(LossWeights, OfOneOutput) {
  Sequential model({layers::Input({.shape = {1}}),
                    layers::Dense{.units = 1, .use_bias = false, .kernel_regularizer = {.l2 = 0.5}}});
  model.set_weights({{2.0f}});
  model.compile({.optimizer = SGD{.learning_rate = 0.1}, .loss = "mse", .loss_weights = {0.25}});
  const ArraySource source({.input_shape = {1},
                            .input = std::vector<float>{1, 2},
                            .label_shape = {1},
                            .labels = std::vector<float>{0, 0}});
  const History history = model.fit(source, {.batch_size = 2});
  EXPECT_THAT(names_of(history), ElementsAre("loss"));
  EXPECT_NEAR(history.at("loss")[0], 0.25 * 10.0 + 0.5 * 4.0, 1e-6);
  EXPECT_NEAR(model.get_weights()[0][0], 2.0 - 0.1 * (0.25 * 10.0 + 2.0 * 0.5 * 2.0), 1e-5);
}

// An inception-like classifier: the auxiliary head helps the lower half to learn.
TEST(AuxiliaryHeads, Train) {
  const auto image = layers::Input({.shape = {6}, .name = "image"});
  const auto low = layers::Dense{.units = 12, .activation = "relu"}(image);
  const auto high = layers::Dense{.units = 12, .activation = "relu"}(low);
  Model model({image}, {layers::Dense{.units = 3, .activation = "softmax", .name = "top"}(high),
                        layers::Dense{.units = 3, .activation = "softmax", .name = "auxiliary"}(low)});
  model.compile({.optimizer = Adam{.learning_rate = 0.02},
                 .loss = "sparse_categorical_crossentropy",
                 .loss_weights = {1.0, 0.3},
                 .metrics = {"accuracy"}});
  std::vector<int32_t> classes(60);
  std::vector<float> x = waves(360, 97);
  for (size_t i = 0; i < classes.size(); ++i) {
    classes[i] = static_cast<int32_t>(i % 3);
    x[6 * i + i % 3] += 1.0f;
  }
  const ArraySource source(ArraysData{.inputs = {{.shape = {6}, .values = x}},
                                      .labels = {{.shape = {}, .values = classes, .classes = 3},
                                                 {.shape = {}, .values = classes, .classes = 3}}});
  const History history = model.fit(source, {.batch_size = 20, .epochs = 30});
  EXPECT_GT(history.at("top_accuracy").back(), 0.9);
  EXPECT_GT(history.at("auxiliary_accuracy").back(), 0.9);
  EXPECT_LT(history.at("loss").back(), 0.5 * history.at("loss").front());
}

}  // namespace
}  // namespace rondo
