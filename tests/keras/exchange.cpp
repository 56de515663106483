// The half of exchange.py that speaks C++:
//   keras_exchange names                     the models of the zoo, with the input each takes here
//   keras_exchange write NAME FOLDER         a model with random weights to FOLDER/NAME.{h5,keras,weights.h5}
//                                            and FOLDER/NAME.json, the same for Keras 3 to
//                                            FOLDER/NAME.keras3..., an input and what it predicts to
//                                            NAME.io.h5
//   keras_exchange predict MODEL IO OUT      loads MODEL, predicts array x of IO, writes OUT with array y
//   keras_exchange optimizers                what can be trained with here
//   keras_exchange train OPTIMIZER IO FOLDER trains a small model on IO's x and y for two steps, writes
//                                            FOLDER/OPTIMIZER[.keras3].{h5,keras}, trains two more steps and
//                                            writes their losses to FOLDER/OPTIMIZER.losses.h5
//   keras_exchange continue MODEL IO OUT     loads MODEL, trains two steps, writes OUT with array losses
#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/files.h"
#include "models/keras/helper_process.h"
#include "models/layers/core.h"
#include "models/layers/normalization.h"
#include "models/model.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"
#include "runtime/data/array_source.h"

namespace {

using namespace rondo;

const std::vector<std::pair<KerasDialect, std::string>> kDialects{{KerasDialect::kTfKeras, ""},
                                                                  {KerasDialect::kKeras3, ".keras3"}};

// The smallest input that every model of the zoo takes, or nearly so.
Shape input_of(const std::string& name) {
  if (name == "mlp" || name == "cnn" || name == "lenet5") return {28, 28, 1};
  if (name == "xception" || name == "inception_v3") return {75, 75, 3};
  if (name == "transformer" || name == "lstm_classifier") return {12, 8};
  return {32, 32, 3};
}

std::vector<float> predict(Model& model, const std::vector<float>& x) {
  const auto rows = static_cast<size_t>(static_cast<int64_t>(x.size()) / model.input_shape().elements());
  const ArraySource source(
      {.input_shape = model.input_shape(), .input = x, .labels = std::vector<int32_t>(rows, 0)});
  return model.predict(source);
}

keras::StoredArray stored(int64_t rows, const Shape& sample, std::vector<float> values) {
  keras::StoredArray array{.shape = {rows}, .values = std::move(values)};
  array.shape.insert(array.shape.end(), sample.extents().begin(), sample.extents().end());
  return array;
}

// Weights away from their beginning: moving statistics and biases count, too.
void shake(Model& model) {
  auto weights = model.get_weights();
  int seed = 0;
  for (auto& values : weights) {
    if (values.size() > 4096) continue;  // large kernels are random already
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += 0.02f * std::abs(std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(seed)));
    }
    ++seed;
  }
  model.set_weights(weights);
}

void write(const std::string& name, const std::string& folder) {
  Model model = zoo::make(name, input_of(name), 10, 3);
  shake(model);
  const std::string base = folder + "/" + name;
  constexpr int64_t kRows = 2;
  std::vector<float> x(static_cast<size_t>(kRows * model.input_shape().elements()));
  const bool words = model.input_shape().rank() == 1;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = words ? static_cast<float>(i * 7 % 50) : std::sin(static_cast<float>(i) * 0.11f);
  }
  for (const auto& [dialect, mark] : kDialects) {
    model.save(base + mark + ".h5", {.dialect = dialect});
    model.save(base + mark + ".keras", {.dialect = dialect});
    model.save_weights(base + mark + ".weights.h5", {.dialect = dialect});
    std::ofstream(base + mark + ".json") << model.to_json(1, dialect);
  }
  keras::FileContent io;
  io.root.put_array("y", stored(kRows, model.output_shape(), predict(model, x)));
  io.root.put_array("x", stored(kRows, model.input_shape(), std::move(x)));
  keras::write_file(base + ".io.h5", keras::Container::kH5, io);
}

void predict_file(const std::string& path, const std::string& io, const std::string& out) {
  Model model = load_model(path, {.compile = false});
  const keras::FileContent content = keras::read_file(io);
  const keras::StoredArray& x = content.root.arrays.at("x");
  std::vector<float> values;
  if (const auto* whole = std::get_if<std::vector<int64_t>>(&x.values)) {
    values.assign(whole->begin(), whole->end());
  } else {
    values = std::get<std::vector<float>>(x.values);
  }
  keras::FileContent result;
  result.root.put_array("y", stored(x.shape.at(0), model.output_shape(), predict(model, values)));
  keras::write_file(out, keras::Container::kH5, result);
}

// Keras from 2.11 on has these in archives; where it differs from its earlier self, ours are as it is there.
const std::map<std::string, OptimizerConfig> kOptimizers{
    {"sgd", SGD{.learning_rate = 0.1}},
    {"sgd_momentum", SGD{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true}},
    {"sgd_decay", SGD{.learning_rate = 0.1, .momentum = 0.5, .decay = 0.5}},
    {"rmsprop", RMSprop{.learning_rate = 0.01, .epsilon_inside = true}},
    {"rmsprop_centered",
     RMSprop{.learning_rate = 0.01, .momentum = 0.5, .centered = true, .epsilon_inside = true}},
    {"adagrad", Adagrad{.learning_rate = 0.05, .epsilon_inside = true}},
    {"adadelta", Adadelta{.learning_rate = 1.0}},
    {"adam", Adam{.learning_rate = 0.01, .clip = {.clipnorm = 0.05}}},
    {"adam_polynomial",
     Adam{.learning_rate = 0.02, .schedule = {.rule = PolynomialSchedule{.total_steps = 5, .end = 0.001}}}},
    {"amsgrad", Adam{.learning_rate = 0.01, .amsgrad = true}},
    {"adamw", AdamW{.learning_rate = 0.01, .weight_decay = 0.1}},
    {"adamax", Adamax{.learning_rate = 0.01}},
    {"nadam", Nadam{.learning_rate = 0.01, .schedule_decay = 1.0}},
};

ArraySource training_data(const keras::FileContent& io) {
  return ArraySource({.input_shape = {5},
                      .input = std::get<std::vector<float>>(io.root.arrays.at("x").values),
                      .label_shape = {3},
                      .labels = std::get<std::vector<float>>(io.root.arrays.at("y").values)});
}

std::vector<double> train(Model& model, const ArraySource& data, int64_t steps) {
  return model.fit(data, {.batch_size = data.size(), .epochs = steps, .shuffle = false}).at("loss");
}

void write_losses(const std::string& path, const std::vector<double>& losses) {
  keras::FileContent result;
  result.root.put_array("losses", {.shape = {static_cast<int64_t>(losses.size())},
                                   .values = std::vector<float>(losses.begin(), losses.end())});
  keras::write_file(path, keras::Container::kH5, result);
}

void train_and_write(const std::string& name, const std::string& io, const std::string& folder) {
  const ArraySource data = training_data(keras::read_file(io));
  Model model = Sequential({layers::Input({.shape = {5}}), layers::Dense{.units = 6, .activation = "tanh"},
                            layers::BatchNormalization{}, layers::Dense{.units = 3, .activation = "softmax"}},
                           {.name = "small", .seed = 4});
  model.compile(
      {.optimizer = kOptimizers.at(name), .loss = "categorical_crossentropy", .metrics = {"accuracy"}});
  train(model, data, 2);
  for (const auto& [dialect, mark] : kDialects) {
    model.save(folder + "/" + name + mark + ".h5", {.dialect = dialect});
    model.save(folder + "/" + name + mark + ".keras", {.dialect = dialect});
  }
  write_losses(folder + "/" + name + ".losses.h5", train(model, data, 2));
}

void continue_training(const std::string& path, const std::string& io, const std::string& out) {
  Model model = load_model(path);
  write_losses(out, train(model, training_data(keras::read_file(io)), 2));
}

int run(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "names" && argc == 2) {
    for (const std::string& name : zoo::names()) fmt::print("{} {}\n", name, input_of(name).text());
  } else if (verb == "write" && argc == 4) {
    write(argv[2], argv[3]);
  } else if (verb == "predict" && argc == 5) {
    predict_file(argv[2], argv[3], argv[4]);
  } else if (verb == "optimizers" && argc == 2) {
    for (const auto& [name, config] : kOptimizers) fmt::print("{}\n", name);
  } else if (verb == "train" && argc == 5) {
    train_and_write(argv[2], argv[3], argv[4]);
  } else if (verb == "continue" && argc == 5) {
    continue_training(argv[2], argv[3], argv[4]);
  } else {
    fmt::print(stderr, "usage: see exchange.cpp\n");
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
