// The facade: compile, fit, evaluate, predict, weights, and multi_gpu_model.
#include "models/model.h"

#include <gmock/gmock.h>

#include <cmath>
#include <mutex>

#include "models/graph/graph.h"
#include "models/losses/losses.h"
#include "models/rondo.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const SyntheticSource& small_data() {
  static const SyntheticSource data({.size = 200, .input_shape = {12, 12, 1}, .classes = 4, .seed = 2});
  return data;
}

Model small_model() {
  return Sequential({layers::Input({.shape = {12, 12, 1}}),
                     layers::Conv2D{.filters = 12, .kernel_size = {3, 3}, .activation = "relu"},
                     layers::MaxPooling2D{}, layers::BatchNormalization{}, layers::Dropout{.rate = 0.1f},
                     layers::Conv2D{.filters = 10, .kernel_size = {3, 3}},
                     layers::Activation{.activation = "relu"}, layers::Flatten{},
                     layers::Dense{.units = 4, .activation = "softmax"}});
}

CompileOptions compile_options() {
  return {.optimizer = Adam{}, .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}};
}

TEST(Model, LearnsAndReports) {
  Model model = small_model();
  model.compile(compile_options());
  const Logs before = model.evaluate(small_data());
  const History history = model.fit(small_data(), {.batch_size = 30, .epochs = 5, .validation_split = 0.1});
  EXPECT_EQ(history.at("loss").size(), 5u);
  EXPECT_LT(history.at("loss").back(), 0.7 * history.at("loss").front());
  EXPECT_EQ(history.at("val_accuracy").size(), 5u);
  const Logs after = model.evaluate(small_data());
  EXPECT_EQ(after[0].first, "loss");
  EXPECT_EQ(after[1].first, "accuracy");
  EXPECT_LT(after[0].second, before[0].second);
  // Fitting again goes on: the optimizer keeps its state.
  const History more = model.fit(small_data(), {.batch_size = 30, .epochs = 6, .initial_epoch = 5});
  EXPECT_LT(more.at("loss").front(), history.at("loss").front());
}

TEST(Model, PredictsProbabilitiesThatExplainTheEvaluation) {
  Model model = small_model();
  const std::vector<float> untrained = model.predict(small_data(), 64);  // needs no compile
  model.compile(compile_options());
  model.fit(small_data(), {.batch_size = 30, .epochs = 2});
  const std::vector<float> outputs = model.predict(small_data(), 64);
  EXPECT_NE(outputs, untrained);
  ASSERT_EQ(outputs.size(), 800u);
  double loss = 0.0;
  double right = 0.0;
  std::vector<float> pixels(144);
  for (int64_t i = 0; i < 200; ++i) {
    int32_t label = -1;
    small_data().read(i, pixels, std::as_writable_bytes(std::span(&label, 1)));
    const auto row = std::span(outputs).subspan(static_cast<size_t>(4 * i), 4);
    EXPECT_NEAR(row[0] + row[1] + row[2] + row[3], 1.0f, 1e-5f);
    loss -= std::log(static_cast<double>(row[static_cast<size_t>(label)]));
    right += std::max_element(row.begin(), row.end()) - row.begin() == label ? 1.0 : 0.0;
  }
  const Logs logs = model.evaluate(small_data(), 64);
  EXPECT_NEAR(logs[0].second, loss / 200.0, 1e-4);
  EXPECT_NEAR(logs[1].second, right / 200.0, 1e-9);
}

TEST(Model, WeightsGoThroughBlockedLayoutsUnchanged) {
  Model model = small_model();
  const auto initial = model.get_weights();
  ASSERT_EQ(initial.size(), 10u);  // two convolutions, batch normalization, dense
  model.predict(small_data());     // puts the weights on the device
  EXPECT_EQ(model.get_weights(), initial);
  auto changed = initial;
  for (size_t i = 0; i < changed.size(); ++i) {
    for (size_t j = 0; j < changed[i].size(); ++j)
      changed[i][j] = static_cast<float>(i) + 0.001f * static_cast<float>(j);
  }
  model.set_weights(changed);
  EXPECT_EQ(model.get_weights(), changed);
  model.compile(compile_options());
  model.fit(small_data(), {.batch_size = 50});
  model.set_weights(initial);  // into the trainer's buckets
  EXPECT_EQ(model.get_weights(), initial);

  changed.back().pop_back();
  EXPECT_THAT(
      [&] { model.set_weights(changed); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("dense/bias"), HasSubstr("(4,)"), HasSubstr("3 were"))));
  changed.pop_back();
  EXPECT_THROW(model.set_weights(changed), InvalidArgument);
  EXPECT_EQ(model.get_weights(), initial);
}

TEST(Model, RefusesWhatDoesNotFit) {
  Model model = small_model();
  EXPECT_THAT([&] { model.fit(small_data()); }, ThrowsMessage<InvalidArgument>(HasSubstr("not compiled")));
  EXPECT_THAT([&] { model.compile({.optimizer = SGD{}, .loss = "crossentropy"}); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("\"crossentropy\""), HasSubstr("categorical_crossentropy"))));
  EXPECT_THAT([&] { model.compile({.optimizer = SGD{}, .loss = "mse", .metrics = {"f1"}}); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"f1\""), HasSubstr("accuracy"))));
  model.compile(compile_options());
  EXPECT_THROW(model.optimizer(), InvalidArgument);
  const SyntheticSource other({.size = 10, .input_shape = {10, 12, 1}, .classes = 4});
  EXPECT_THAT([&] { model.fit(other); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("(12, 12, 1)"), HasSubstr("(10, 12, 1)"))));
  EXPECT_THROW(model.fit(small_data(), {.batch_size = -1}), InvalidArgument);
  EXPECT_THROW(model.fit(small_data(), {.epochs = -1}), InvalidArgument);
  EXPECT_THROW(model.fit(small_data(), {.validation_split = 1.5}), InvalidArgument);
  model.compile({.optimizer = SGD{}, .loss = "categorical_crossentropy"});
  EXPECT_THAT([&] { model.fit(small_data()); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("categorical_crossentropy"), HasSubstr("(4,)"),
                                                   HasSubstr("sparse_categorical_crossentropy"))));
}

TEST(Losses, AccuracyResolvesAsInTfKeras) {
  const auto metric = [](const char* loss, const Shape& output) {
    return make_objective(loss, {"accuracy"}, output).metrics[0].metric;
  };
  EXPECT_EQ(metric("sparse_categorical_crossentropy", {10}), Metric::kSparseCategoricalAccuracy);
  EXPECT_EQ(metric("categorical_crossentropy", {10}), Metric::kCategoricalAccuracy);
  EXPECT_EQ(metric("mse", {10}), Metric::kCategoricalAccuracy);
  EXPECT_EQ(metric("binary_crossentropy", {1}), Metric::kBinaryAccuracy);
  EXPECT_THROW(make_objective("sparse_categorical_crossentropy", {"mse"}, {10}), InvalidArgument);
}

TEST(Losses, MetricsOfSoftLabels) {
  // Regression and probabilities at once: mse and mae need the probabilities that the loss does without.
  ArrayData arrays;
  arrays.input_shape = {3};
  arrays.input = std::vector<float>{0.1f, 0.2f, 0.3f, -0.5f, 0.0f, 1.0f};
  arrays.label_shape = {2};
  arrays.labels = std::vector<float>{0.0f, 1.0f, 0.5f, 0.25f};
  const ArraySource data(std::move(arrays));
  const auto in = layers::Input({.shape = {3}});
  for (const char* f : {"softmax", "sigmoid"}) {
    const bool softmax = f[1] == 'o';
    Model model({in}, {layers::Dense{.units = 2, .activation = f}(in)});
    model.compile({.optimizer = SGD{},
                   .loss = softmax ? "categorical_crossentropy" : "binary_crossentropy",
                   .metrics = {"mse", "mae", "binary_accuracy"}});
    const std::vector<float> p = model.predict(data);
    const float y[] = {0.0f, 1.0f, 0.5f, 0.25f};
    double mse = 0.0, mae = 0.0, accuracy = 0.0;
    for (size_t i = 0; i < 4; ++i) {
      const double d = static_cast<double>(p[i] - y[i]);
      mse += d * d / 4.0;
      mae += std::abs(d) / 4.0;
      accuracy += (p[i] > 0.5f ? 1.0f : 0.0f) == y[i] ? 0.25 : 0.0;
    }
    const Logs logs = model.evaluate(data);
    EXPECT_NEAR(logs[1].second, mse, 1e-6) << f;
    EXPECT_NEAR(logs[2].second, mae, 1e-6) << f;
    EXPECT_NEAR(logs[3].second, accuracy, 1e-9) << f;
  }
}

TEST(MultiGpuModel, SharesItsWeightsWithTheTemplate) {
  std::mutex mutex;
  std::vector<std::vector<float>> predictions;
  run_ranks(3, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto backend = make_cpu_backend(*device);
    Model model = small_model();
    const auto initial = model.get_weights();
    Model parallel = multi_gpu_model(model, comm, *backend);
    parallel.compile(compile_options());
    const History first = parallel.fit(small_data(), {.batch_size = 32, .epochs = 2});
    EXPECT_NE(model.get_weights(), initial);
    EXPECT_EQ(model.get_weights(), parallel.get_weights());
    // The template evaluates and predicts by itself, with what the parallel model has learned.
    model.compile(compile_options());
    const Logs merged = parallel.evaluate(small_data());
    const Logs alone = model.evaluate(small_data());
    EXPECT_NEAR(alone[0].second, merged[0].second, 1e-5);
    EXPECT_EQ(alone[1].second, merged[1].second);
    const std::vector<float> outputs = model.predict(small_data());
    const std::vector<float> together = parallel.predict(small_data());
    for (size_t i = 0; i < outputs.size(); ++i) ASSERT_NEAR(outputs[i], together[i], 1e-5f);
    // And training goes on where it was.
    const History second = parallel.fit(small_data(), {.batch_size = 32, .epochs = 3, .initial_epoch = 2});
    EXPECT_LT(second.at("loss").front(), first.at("loss").front());
    const std::lock_guard lock(mutex);
    predictions.push_back(model.predict(small_data()));
  });
  ASSERT_EQ(predictions.size(), 3u);
}

TEST(MultiGpuModel, TrainingTheTemplateInBetweenIsSeen) {
  const auto device = make_cpu_device(1);
  const auto backend = make_cpu_backend(*device);
  run_ranks(1, [&](Communicator& comm) {
    Model model = small_model();
    Model parallel = multi_gpu_model(model, comm, *backend);
    parallel.compile(compile_options());
    model.compile(compile_options());
    parallel.fit(small_data(), {.batch_size = 50});
    model.fit(small_data(), {.batch_size = 50});
    const auto trained = model.get_weights();
    EXPECT_EQ(parallel.get_weights(), trained);
    parallel.fit(small_data(), {.batch_size = 50});
    EXPECT_NE(model.get_weights(), trained);
    EXPECT_EQ(model.get_weights(), parallel.get_weights());
  });
}

TEST(MultiGpuModel, ChecksGpus) {
  run_ranks(2, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto backend = make_cpu_backend(*device);
    const Model model = zoo::mlp({4, 4, 1}, 2);
    EXPECT_NO_THROW(multi_gpu_model(model, comm, *backend, {.gpus = 2}));
    EXPECT_NO_THROW(multi_gpu_model(model, comm, *backend, {.gpus = std::vector{1, 0}}));
    EXPECT_THAT([&] { multi_gpu_model(model, comm, *backend, {.gpus = 4}); },
                ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("0 to 3"), HasSubstr("0 to 1"))));
    EXPECT_NO_THROW(multi_gpu_model(model, comm, *backend, {.gpus = 0}));
    EXPECT_NO_THROW(multi_gpu_model(model, comm, *backend, {.gpus = std::vector<int>()}));
    EXPECT_THROW(multi_gpu_model(model, comm, *backend, {.gpus = 1}), InvalidArgument);
    EXPECT_THROW(multi_gpu_model(model, comm, *backend, {.gpus = std::vector{0}}), InvalidArgument);
    EXPECT_THROW(multi_gpu_model(model, comm, *backend, {.gpus = std::vector{0, 0}}), InvalidArgument);
    EXPECT_THROW(multi_gpu_model(model, comm, *backend, {.gpus = std::vector{-1, 0}}), InvalidArgument);
  });
  run_ranks(3, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto backend = make_cpu_backend(*device);
    EXPECT_THAT(
        [&] {
          multi_gpu_model(zoo::mlp({4, 4, 1}, 2), comm, *backend, {.gpus = 2});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("2 of 3 ranks")));
  });
}

// What Keras' documentation shows: ask for several devices, and train on one where there are not so many.
TEST(MultiGpuModel, FallsBackToOneDevice) {
  run_ranks(1, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto backend = make_cpu_backend(*device);
    Model model = small_model();
    Model parallel = model;
    try {
      parallel = multi_gpu_model(model, comm, *backend, {.gpus = 8});
      ADD_FAILURE() << "there is one device only";
    } catch (const InvalidArgument&) {
    }
    parallel.compile(compile_options());
    const auto before = model.get_weights();
    parallel.fit(small_data(), {.batch_size = 50});
    EXPECT_NE(model.get_weights(), before);
  });
}

// What a pretrained model has learned serves another: up to a layer, frozen, with a new head.
void expect_transfer(Model base) {
  base.set_trainable(false);
  const auto features = base.layer_output("features");
  Model tuned(base.graph().inputs(),
              {layers::Dense{.units = 4, .activation = "softmax", .name = "head"}(features)}, {.seed = 8});
  EXPECT_EQ(&tuned.get_layer("features"), &base.get_layer("features"));
  const auto before = base.get_weights();
  CompileOptions fast = compile_options();
  fast.optimizer = Adam{.learning_rate = 0.01};
  tuned.compile(fast);
  const auto initial = tuned.get_weights();
  const History history = tuned.fit(small_data(), {.batch_size = 25, .epochs = 10});
  EXPECT_LT(history.at("loss").back(), 0.95 * history.at("loss").front());
  EXPECT_EQ(base.get_weights(), before);
  const auto after = tuned.get_weights();
  EXPECT_EQ(std::vector(after.begin(), after.end() - 2), std::vector(initial.begin(), initial.end() - 2));
  EXPECT_NE(after.back(), initial.back());

  base.set_trainable(true);
  EXPECT_THAT([&] { tuned.fit(small_data()); },
              ThrowsMessage<InvalidArgument>(HasSubstr("call compile again")));
  tuned.compile(compile_options());
  tuned.fit(small_data(), {.batch_size = 50});
  EXPECT_NE(tuned.get_weights().front(), initial.front());
  EXPECT_EQ(base.get_weights().front(), tuned.get_weights().front());
}

Model base_model() {
  return Sequential({layers::Input({.shape = {12, 12, 1}}),
                     layers::Conv2D{.filters = 6, .kernel_size = {3, 3}}, layers::Flatten{},
                     layers::Dense{.units = 16, .activation = "relu", .name = "features"},
                     layers::Dense{.units = 3, .activation = "softmax"}});
}

TEST(Transfer, OfAModelThatWasOnlyMade) {
  expect_transfer(base_model());
}

TEST(Transfer, OfAModelThatPredictedAndTrained) {
  const SyntheticSource data({.size = 60, .input_shape = {12, 12, 1}, .classes = 3, .seed = 5});
  Model base = base_model();
  base.compile(compile_options());
  base.fit(data);
  const auto trained = base.predict(data);
  expect_transfer(base);
  EXPECT_EQ(base.predict(data).size(), trained.size());
}

// Two models with weights of their own that were used alone, and a third of both.
TEST(Transfer, JoinsModelsThatWereUsedAlone) {
  const auto code = layers::Input({.shape = {8}}), image = layers::Input({.shape = {12, 12, 1}});
  Model first({image}, {layers::Dense{.units = 8, .activation = "tanh"}(layers::Flatten{}(image))},
              {.name = "first"});
  Model second({code}, {layers::Dense{.units = 4, .activation = "softmax"}(code)}, {.name = "second"});
  const SyntheticSource codes({.size = 40, .input_shape = {8}, .classes = 4, .seed = 6});
  second.compile(compile_options());
  second.fit(codes);
  first.predict(small_data());
  const auto in = layers::Input({.shape = {12, 12, 1}});
  Model both({in}, {second(first(in))});
  const auto seconds = second.get_weights(), firsts = first.get_weights();
  both.compile(compile_options());
  both.fit(small_data(), {.epochs = 2});
  EXPECT_NE(first.get_weights(), firsts);
  EXPECT_NE(second.get_weights(), seconds);
  const auto whole = both.get_weights();
  EXPECT_EQ(std::vector(whole.begin(), whole.begin() + 2), first.get_weights());
  EXPECT_EQ(std::vector(whole.begin() + 2, whole.end()), second.get_weights());
  const auto before = second.get_weights();
  second.fit(codes, {.epochs = 2, .initial_epoch = 1});  // its weights have moved since
  EXPECT_NE(second.get_weights(), before);
  EXPECT_EQ(both.get_weights()[2], second.get_weights()[0]);
}

TEST(Transfer, NamesWhatIsNotThere) {
  const Model base = base_model();
  EXPECT_THAT([&] { base.get_layer("feature"); },
              ThrowsMessage<InvalidArgument>(
                  AllOf(HasSubstr("\"feature\""), HasSubstr("conv2d, flatten, features"))));
  const layers::Dense shared{.units = 4, .name = "shared"};
  const auto in = layers::Input({.shape = {4}});
  const Model twice({in}, {shared(shared(in))});
  EXPECT_THAT([&] { twice.layer_output("shared"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("several times")));
}

}  // namespace
}  // namespace rondo
