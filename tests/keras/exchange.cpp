// The half of exchange.py that speaks C++:
//   keras_exchange names                     the models of the zoo, with the input each takes here
//   keras_exchange write NAME FOLDER         a model with random weights to FOLDER/NAME.{h5,keras,weights.h5}
//                                            and FOLDER/NAME.json, an input and what it predicts to
//                                            NAME.io.h5
//   keras_exchange predict MODEL IO OUT      loads MODEL, predicts array x of IO, writes OUT with array y
#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <string>

#include "models/files.h"
#include "models/keras/helper_process.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"
#include "runtime/data/array_source.h"

namespace {

using namespace rondo;

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
  model.save(base + ".h5");
  model.save(base + ".keras");
  model.save_weights(base + ".weights.h5");
  std::ofstream(base + ".json") << model.to_json(1);
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

int run(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "names" && argc == 2) {
    for (const std::string& name : zoo::names()) fmt::print("{} {}\n", name, input_of(name).text());
  } else if (verb == "write" && argc == 4) {
    write(argv[2], argv[3]);
  } else if (verb == "predict" && argc == 5) {
    predict_file(argv[2], argv[3], argv[4]);
  } else {
    fmt::print(stderr, "usage: keras_exchange names | write NAME FOLDER | predict MODEL IO OUT\n");
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
