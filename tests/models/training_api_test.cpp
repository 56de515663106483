// Losses, metrics and weights as a user of Model meets them.
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <mutex>

#include "models/layers/core.h"
#include "models/layers/linear.h"
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
using testing::HasSubstr;
using testing::ThrowsMessage;

std::shared_ptr<ArraySource> numbers(std::vector<float> x, std::vector<float> y, int64_t columns = 1) {
  return std::make_shared<ArraySource>(ArrayData{
      .input_shape = {columns}, .input = std::move(x), .label_shape = {columns}, .labels = std::move(y)});
}

// A model whose output is its input, but for the weight w (at first 1) of a single connection.
Model identity(const LossConfig& loss, const std::vector<MetricConfig>& metrics = {}, double rate = 0.0) {
  Sequential model({layers::Input({.shape = {1}}), layers::Dense{.units = 1, .use_bias = false}});
  model.set_weights({{1.0f}});
  model.compile({.optimizer = SGD{.learning_rate = rate}, .loss = loss, .metrics = metrics});
  return model;
}

double value_of(const Logs& logs, const std::string& name) {
  for (const auto& [known, value] : logs) {
    if (known == name) return value;
  }
  ADD_FAILURE() << "no " << name;
  return 0.0;
}

TEST(Compile, KnowsKerasLossesByAllTheirNames) {
  for (const char* name : {"mse", "mean_absolute_percentage_error", "msle", "hinge", "squared_hinge",
                           "categorical_hinge", "kld", "kullback_leibler_divergence", "poisson", "logcosh",
                           "log_cosh", "huber", "huber_loss", "cosine_similarity", "cosine_proximity"}) {
    EXPECT_NO_THROW(loss_by_name(name)) << name;
  }
  EXPECT_EQ(loss_name(loss_by_name("kld")), "kl_divergence");
  EXPECT_THAT([] { loss_by_name("mze"); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("mze"), HasSubstr("huber"))));
  const auto made = [](const LossConfig& loss, const std::vector<MetricConfig>& metrics = {}) {
    return [=] { make_objective(loss, metrics, {3}); };
  };
  EXPECT_THAT(made({"mse", {.label_smoothing = 0.1}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("no label_smoothing")));
  EXPECT_THAT(made({"mse", {.from_logits = true}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("no from_logits")));
  EXPECT_THAT(made({"huber", {.delta = -1.0}}), ThrowsMessage<InvalidArgument>(HasSubstr("delta is -1")));
  EXPECT_THAT(made({"categorical_crossentropy", {.label_smoothing = 2.0}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("label_smoothing is 2")));
  EXPECT_THAT(made("mse", {{"top_k_categorical_accuracy", {.k = 0}}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("k is 0")));
  EXPECT_THAT(made("mse", {{"auc", {.curve = "roc"}}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("ROC or PR")));
  EXPECT_THAT(made("mse", {{"precision", {.threshold = 1.5}}}),
              ThrowsMessage<InvalidArgument>(HasSubstr("threshold is 1.5")));
  EXPECT_THAT(made("mse", {"f1"}),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("f1"), HasSubstr("recall"))));
  EXPECT_THAT(made("mse", {"sparse_top_k_categorical_accuracy"}),
              ThrowsMessage<InvalidArgument>(HasSubstr("class numbers")));
}

TEST(Compile, MetricsResolveAndAreNamedAsInKeras) {
  const Objective objective = make_objective(
      "categorical_crossentropy",
      {"acc", "AUC", {"AUC", {.curve = "PR"}}, {"AUC", {.name = "prc"}}, "Precision", "ce"}, {3});
  std::vector<std::string> names;
  for (const NamedMetric& metric : objective.metrics) names.push_back(metric.name);
  EXPECT_EQ(names, (std::vector<std::string>{"acc", "auc", "auc_1", "prc", "precision", "ce"}));
  EXPECT_EQ(objective.metrics[0].metric, Metric::kCategoricalAccuracy);
  EXPECT_EQ(objective.metrics[2].value, MetricValue::kPrArea);
  EXPECT_EQ(objective.metrics[5].loss, Loss::kCategoricalCrossentropy);
  EXPECT_EQ(make_objective("mse", {"accuracy"}, {1}).metrics[0].metric, Metric::kBinaryAccuracy);
}

TEST(Metrics, ComeFromTheirSums) {
  const auto x = numbers({0.1f, 0.4f, 0.35f, 0.8f}, {0, 0, 1, 1});
  Model model = identity("mse", {"auc",
                                 {"auc", {.name = "pr", .curve = "PR"}},
                                 "precision",
                                 "recall",
                                 "rmse",
                                 "mae",
                                 "cosine_similarity",
                                 {"binary_accuracy", {.threshold = 0.38}},
                                 "kld"});
  const Logs logs = model.evaluate(*x, 3);
  EXPECT_NEAR(value_of(logs, "auc"), 0.75, 1e-6);         // Keras' own example
  EXPECT_NEAR(value_of(logs, "pr"), 0.7972674459, 1e-6);  // by the formula of Davis and Goadrich
  EXPECT_NEAR(value_of(logs, "precision"), 1.0, 1e-12);
  EXPECT_NEAR(value_of(logs, "recall"), 0.5, 1e-12);
  EXPECT_NEAR(value_of(logs, "rmse"), std::sqrt((0.01 + 0.16 + 0.4225 + 0.04) / 4.0), 1e-6);
  EXPECT_NEAR(value_of(logs, "mae"), (0.1 + 0.4 + 0.65 + 0.2) / 4.0, 1e-6);
  EXPECT_NEAR(value_of(logs, "cosine_similarity"), 0.5, 1e-6);
  EXPECT_NEAR(value_of(logs, "binary_accuracy"), 0.5, 1e-12);
}

TEST(SampleWeights, MultiplyLossesButNotTheDivisor) {
  const auto data = numbers({1, 2, 3, 4}, {0, 0, 0, 0});
  Model model = identity("mse", {"mae"});
  const History history = model.fit(*data, {.batch_size = 2, .sample_weight = {1, 0, 2, 0.5f}});
  EXPECT_NEAR(history.at("loss")[0], (1.0 + 18.0 + 8.0) / 4.0, 1e-6);
  EXPECT_NEAR(history.at("mae")[0], 2.5, 1e-6);  // metrics have no weights
  // The gradient is weighted too: d loss / d w = 2 sum(weight x^2) / 4.
  Model trained = identity("mse", {}, 0.1);
  trained.fit(*data, {.batch_size = 4, .sample_weight = {1, 0, 2, 0.5f}});
  EXPECT_NEAR(trained.get_weights()[0][0], 1.0 - 0.1 * 2.0 * 27.0 / 4.0, 1e-5);
  const WeightedSource weighted(data, std::vector<float>{1, 0, 2, 0.5f});
  EXPECT_NEAR(value_of(model.evaluate(weighted), "loss"), 27.0 / 4.0, 1e-6);
}

TEST(SampleWeights, AreSplitWithTheDataAndClassWeightsAreNot) {
  const auto data = numbers({1, 1, 1, 1}, {0, 1, 0, 0});
  Model model = identity("mse");
  const History history = model.fit(*data, {.batch_size = 4,
                                            .validation_split = 0.5,
                                            .sample_weight = {1, 1, 3, 5},
                                            .class_weight = {{0, 10.0}, {1, 2.0}}});
  EXPECT_NEAR(history.at("loss")[0], (10.0 * 1.0 + 0.0) / 2.0, 1e-6);
  EXPECT_NEAR(history.at("val_loss")[0], (3.0 + 5.0) / 2.0, 1e-6);
}

TEST(SampleWeights, AreRefusedWhereTheyDoNotFit) {
  const auto data = numbers({1, 1, 1}, {0, 1, 2});
  Model model = identity("mse");
  const auto fit = [&](const std::vector<float>& samples, const std::map<int64_t, double>& classes) {
    return [&model, data, samples, classes] {
      model.fit(*data, {.sample_weight = samples, .class_weight = classes, .loader_threads = 0});
    };
  };
  EXPECT_THAT(fit({1, 2}, {}),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("2 weights"), HasSubstr("3 samples"))));
  EXPECT_THAT(fit({1, -2, 1}, {}), ThrowsMessage<InvalidArgument>(HasSubstr("sample 1 is -2")));
  EXPECT_THAT(fit({}, {{1, 1.0}}), ThrowsMessage<InvalidArgument>(HasSubstr("none for class 0")));
  EXPECT_THAT(fit({}, {{0, 1.0}, {2, 1.0}}), ThrowsMessage<InvalidArgument>(HasSubstr("none for class 1")));
  EXPECT_THAT(fit({}, {{0, 1.0}, {1, 1.0}}),
              ThrowsMessage<Error>(AllOf(HasSubstr("sample 2"), HasSubstr("class 2"))));
  EXPECT_THAT(fit({}, {{0, -1.0}}), ThrowsMessage<InvalidArgument>(HasSubstr("class 0 is -1")));
}

// Classes of one-hot rows are their columns; sample and class weights multiply.
TEST(ClassWeights, TakeTheClassFromTheColumnOfARow) {
  const auto data = numbers({1, 0, 0, 1, 0, 0}, {0, 1, 0, 0, 0, 1}, 3);
  Sequential model({layers::Input({.shape = {3}}), layers::Dense{.units = 3, .use_bias = false}});
  model.set_weights({{1, 0, 0, 0, 1, 0, 0, 0, 1}});
  model.compile({.optimizer = SGD{.learning_rate = 0.0}, .loss = "mse", .weighted_metrics = {"mse"}});
  const auto fit = [&](const ModelFitOptions& options) { return model.fit(*data, options); };
  const History history =
      fit({.batch_size = 2, .sample_weight = {3, 1}, .class_weight = {{0, 1.0}, {1, 5.0}, {2, 7.0}}});
  // Both rows are off in two of three columns: 2 / 3 each, with weights 3 * 5 and 1 * 7.
  EXPECT_NEAR(history.at("loss")[0], (15.0 + 7.0) * 2.0 / 3.0 / 2.0, 1e-5);
  EXPECT_NEAR(history.at("mse")[0], 2.0 / 3.0, 1e-6);
  EXPECT_THAT(
      [&] {
        fit({.class_weight = {{0, 1.0}, {1, 5.0}}});
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("classes 0 to 1"), HasSubstr("3 classes"))));
  EXPECT_THAT(
      [&] {
        fit({.class_weight = {{-1, 1.0}, {0, 5.0}, {1, 5.0}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("class -1")));
  EXPECT_THAT(
      [&] {
        fit({.class_weight = {{0, 1.0}, {1, NAN}, {2, 1.0}}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("class 1 is nan")));
}

// What tf.keras calls right: above one half, not at it.
TEST(BinaryAccuracy, CountsAHalfAsNo) {
  const auto data = numbers({0.5f, 0.5f, 0.75f, 0.25f}, {0, 1, 1, 0});
  Model model = identity("mse", {"accuracy"});
  EXPECT_EQ(value_of(model.evaluate(*data), "accuracy"), 0.75);
}

TEST(Fit, RefusesDataOfOtherRanksAndTypes) {
  Model model = identity("mse");
  const auto fit = [&](ArrayData data, const ModelFitOptions& options = {}) {
    data.name = "given";
    model.fit(ArraySource(std::move(data)), options);
  };
  const std::vector<float> four(4, 1.0f);
  EXPECT_THAT([&] { fit({.input_shape = {}, .input = four, .label_shape = {1}, .labels = four}); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("shape (1,)"), HasSubstr("given has ()"))));
  EXPECT_THAT(
      [&] {
        fit({.input_shape = {1, 1}, .input = four, .label_shape = {1}, .labels = four});
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("shape (1,)"), HasSubstr("given has (1, 1)"))));
  EXPECT_THAT(
      [&] { fit({.input_shape = {1}, .input = four, .label_shape = {}, .labels = four}); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("float32 labels of shape (1,)"), HasSubstr("given"))));
  EXPECT_THAT(
      [&] {
        fit({.input_shape = {1}, .input = four, .label_shape = {1}, .labels = std::vector<int32_t>(4, 1)});
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("float32 labels"), HasSubstr("int32"))));
  const ArrayData good{.input_shape = {1}, .input = four, .label_shape = {1}, .labels = four};
  EXPECT_THAT([&] { fit(good, {.sample_weight = std::vector<float>(8, 1.0f)}); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("8 weights"), HasSubstr("4 samples"))));
  EXPECT_THAT(
      [&] {
        fit(good, {.sample_weight = {1, 1, NAN, 1}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("sample 2 is nan")));
  EXPECT_THAT([&] { fit(good, {.batch_size = -4}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("batch_size must be at least 1, got -4")));
  for (const double split : {-0.5, 1.0, 0.9}) {  // the last one leaves nothing to train on
    EXPECT_THROW(fit(good, {.validation_split = split}), InvalidArgument) << split;
  }
  const ArraySource other({.input_shape = {1}, .input = four, .label_shape = {1, 1}, .labels = four});
  EXPECT_THROW(fit(good, {.validation_data = &other}), InvalidArgument);
}

TEST(SumReduction, AddsUpSamplesAndWeighsBatchesByTheirRows) {
  const auto data = numbers({1, 2, 3}, {0, 0, 0});
  const LossConfig loss{"mse", {.reduction = Reduction::kSum}};
  Model model = identity(loss);
  // Batches of 2 and 1 rows with the sums 5 and 9, as Keras weighs them.
  EXPECT_NEAR(model.fit(*data, {.batch_size = 2, .shuffle = false}).at("loss")[0], (2 * 5.0 + 1 * 9.0) / 3.0,
              1e-6);
  EXPECT_NEAR(value_of(model.evaluate(*data, 2), "loss"), (2 * 5.0 + 1 * 9.0) / 3.0, 1e-6);
  Model trained = identity(loss, {}, 0.01);
  trained.fit(*data, {.batch_size = 3});
  EXPECT_NEAR(trained.get_weights()[0][0], 1.0 - 0.01 * 2.0 * 14.0, 1e-5);
}

TEST(SumReduction, WithPenaltiesIsRefused) {
  const auto data = numbers({1, 2, 3}, {0, 0, 0});
  const auto in = layers::Input({.shape = {1}});
  Model model({in}, {layers::Dense{.units = 1, .kernel_regularizer = {.l2 = 0.1}}(in)});
  model.compile({.loss = LossConfig{"mse", {.reduction = Reduction::kSum}}});
  EXPECT_THAT([&] { model.fit(*data); }, ThrowsMessage<Unavailable>(HasSubstr("reduction \"sum\"")));
}

// Uneven shares, some of them empty: what ranks count adds up to what one would have counted.
TEST(Ranks, MeasureExactlyWhatOneWould) {
  std::vector<float> x, y, weights;
  for (int i = 0; i < 23; ++i) {
    x.push_back(static_cast<float>((i * 37) % 101) / 101.0f);
    y.push_back(static_cast<float>((i * 53) % 7 < 3));
    weights.push_back(static_cast<float>(i % 4));
  }
  const auto data = numbers(x, y);
  Logs alone;
  for (const int ranks : {1, 2, 3, 8}) {
    std::mutex mutex;
    std::vector<Logs> of_ranks;
    run_ranks(ranks, [&](Communicator& comm) {
      const auto device = make_cpu_device(1);
      const auto backend = make_cpu_backend(*device);
      Model model =
          identity({"mse", {.reduction = Reduction::kSum}}, {"auc", "precision", "recall", "accuracy"});
      Model parallel = multi_gpu_model(model, comm, *backend);
      parallel.compile({.optimizer = SGD{.learning_rate = 0.0},
                        .loss = {"mse", {.reduction = Reduction::kSum}},
                        .metrics = {"auc", "precision", "recall", "accuracy"}});
      const History history = parallel.fit(*data, {.batch_size = 5,
                                                   .shuffle = false,
                                                   .sample_weight = weights,
                                                   .class_weight = {{0, 0.5}, {1, 2.0}}});
      Logs logs = parallel.evaluate(*data, 6);
      for (const auto& [name, values] : history.history) logs.emplace_back("fit " + name, values[0]);
      const std::lock_guard lock(mutex);
      of_ranks.push_back(logs);
    });
    if (ranks == 1) alone = of_ranks[0];
    for (const Logs& logs : of_ranks) {
      ASSERT_EQ(logs.size(), alone.size());
      for (size_t i = 0; i < logs.size(); ++i) {
        EXPECT_EQ(logs[i].first, alone[i].first);
        EXPECT_NEAR(logs[i].second, alone[i].second, 1e-6 * std::abs(alone[i].second))
            << logs[i].first << " of " << ranks;
      }
    }
  }
  EXPECT_GT(value_of(alone, "auc"), 0.0);
}

TEST(Fit, NoBatchSizeMeansWhatItMeansInKeras) {
  const auto data = numbers(std::vector<float>(100, 1.0f), std::vector<float>(100, 0.0f));
  Model model = identity("mse");
  EXPECT_EQ(model.fit(*data, {.batch_size = 0}).end.steps_done, 4);  // of 32
  EXPECT_EQ(model.fit(*data, {.batch_size = 0, .epochs = 2, .steps_per_epoch = 3}).end.steps_done, 6);
}

TEST(Fit, ValidatesAfterTheEpochsThatWereAskedFor) {
  const auto data = numbers({1, 2, 3, 4}, {0, 0, 0, 0});
  Model model = identity("mse");
  const auto validations = [&](ModelFitOptions options) {
    options.epochs = 5;
    options.validation_split = 0.25;
    const History history = model.fit(*data, options);
    EXPECT_EQ(history.at("loss").size(), 5u);
    return history.at("val_loss").size();
  };
  EXPECT_EQ(validations({}), 5u);
  EXPECT_EQ(validations({.validation_freq = 2}), 2u);
  EXPECT_EQ(validations({.validation_epochs = {1, 2, 5, 9}}), 3u);
  EXPECT_THAT([&] { validations({.validation_freq = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("validation_freq is 0")));
  const History history = model.fit(*data, {.epochs = 2, .validation_split = 0.25, .validation_freq = 2});
  EXPECT_EQ(history.history[0].first, "loss");
  EXPECT_EQ(history.history[1].first, "val_loss");
}

}  // namespace
}  // namespace rondo
