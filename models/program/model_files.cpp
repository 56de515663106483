#include "models/program/model_files.h"

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/files.h"
#include "models/keras/new_file.h"
#include "models/program/options.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"
#include "runtime/data/source.h"
#include "runtime/launch/world.h"

namespace rondo {
namespace {

// NumPy's format, version 1: a text that describes the array, padded to 64 bytes, then the values.
void write_npy(const std::string& path, int64_t rows, const Shape& sample, const std::vector<float>& values) {
  std::string shape = std::to_string(rows) + ",";
  for (const int64_t extent : sample.extents()) shape += fmt::format(" {},", extent);
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", shape);
  constexpr size_t kPrefix = 10;
  header.append(63 - (kPrefix + header.size()) % 64, ' ');
  header += '\n';
  keras::NewFile file(path);
  const char prefix[kPrefix] = {'\x93',
                                'N',
                                'U',
                                'M',
                                'P',
                                'Y',
                                1,
                                0,
                                static_cast<char>(header.size() & 255),
                                static_cast<char>(header.size() >> 8)};
  file.write({prefix, kPrefix});
  file.write(header);
  file.write({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  file.commit();
}

// Whether how the file was compiled counts.
bool goes_on(const ProgramOptions& options) {
  return options.action == Action::kTrain && options.files.predict.empty() && !options.optimizer_given;
}

std::string sparse_name(const std::string& name) {
  for (const char* known :
       {"categorical_crossentropy", "categorical_accuracy", "top_k_categorical_accuracy"}) {
    if (name == known) return "sparse_" + name;
  }
  return name;
}

// What is said for each output, or for all.
template <class T, class Outputs, class Change>
void change_each(Outputs& outputs, const Change& change) {
  PerOutput<T> said = outputs.value();
  if (T* all = std::get_if<T>(&said)) {
    change(*all);
    outputs = *all;
  } else if (auto* in_order = std::get_if<std::vector<T>>(&said)) {
    for (T& each : *in_order) change(each);
    outputs = *in_order;
  } else {
    auto& by_name = std::get<std::map<std::string, T>>(said);
    for (auto& [name, each] : by_name) change(each);
    outputs = by_name;
  }
}

}  // namespace

Model make_model(const ProgramOptions& options, const Shape& input_shape, int64_t classes) {
  const ModelFileOptions& files = options.files;
  Model model = files.load.empty() ? zoo::make(options.model, input_shape, classes, options.seed)
                                   : load_model(files.load, {.compile = goes_on(options)});
  if (!files.load.empty()) {
    require(model.input_shape() == input_shape, "{}: the model takes samples of shape {}, the data has {}",
            files.load, model.input_shape().text(), input_shape.text());
    require(model.output_shape().elements() >= classes,
            "{}: the model has {} outputs, the data has {} classes", files.load,
            model.output_shape().elements(), classes);
  }
  if (!files.load_weights.empty()) model.load_weights(files.load_weights);
  return model;
}

CompileOptions compile_options(const Model& model, const ProgramOptions& options) {
  const CompileOptions* of_file = model.compile_options();
  CompileOptions compiled{
      .optimizer = options.optimizer, .loss = "sparse_categorical_crossentropy", .metrics = {"accuracy"}};
  if (of_file != nullptr) {
    compiled = *of_file;
    change_each<LossConfig>(compiled.loss, [](LossConfig& loss) { loss.name = sparse_name(loss.name); });
    const auto take_classes = [](OutputMetrics::List& metrics) {
      for (MetricConfig& metric : metrics) metric.metric = sparse_name(metric.metric);
    };
    change_each<OutputMetrics::List>(compiled.metrics, take_classes);
    change_each<OutputMetrics::List>(compiled.weighted_metrics, take_classes);
    std::visit(
        [&](auto& settings) {
          std::visit(
              [&](const auto& given) {
                if (options.learning_rate_given) settings.learning_rate = given.learning_rate;
                if (options.schedule_given) settings.schedule = given.schedule;
              },
              options.optimizer);
        },
        compiled.optimizer);
  }
  compiled.buckets.bytes = options.bucket_bytes;
  compiled.precision = options.precision;
  return compiled;
}

OptimizerState loaded_state(const Model& model, const ProgramOptions& options) {
  return model.compile_options() != nullptr && trains(options.files) ? model.optimizer_state()
                                                                     : OptimizerState{};
}

SaveOptions save_options(const ModelFileOptions& files) {
  return {.dialect = files.for_keras3 ? KerasDialect::kKeras3 : KerasDialect::kTfKeras};
}

bool trains(const ModelFileOptions& files) {
  return !files.evaluate && files.predict.empty();
}

void check_outputs(const ModelFileOptions& files) {
  for (const std::string& path : {files.save, files.save_weights, files.predict}) {
    if (!path.empty()) check_can_write(path);
  }
}

int apply_model(Model& model, const Source& data, const ProgramOptions& options, World& world) {
  if (options.files.evaluate) {
    const Logs logs = model.evaluate(data, options.batch_size);
    std::string line;
    for (const auto& [name, value] : logs)
      line += fmt::format("{}{} {:.4f}", line.empty() ? "" : ", ", name, value);
    if (world.rank() == 0) fmt::print("{}: {}\n", data.name(), line);
  }
  if (options.files.predict.empty()) return 0;
  const std::vector<float> outputs = model.predict(data, options.batch_size);
  world.all_or_none("writing the outputs", [&] {
    if (world.rank() != 0) return;
    write_npy(options.files.predict, data.size(), model.output_shape(), outputs);
    fmt::print("the outputs for {} samples of {} are in {}\n", data.size(), data.name(),
               options.files.predict);
  });
  return 0;
}

}  // namespace rondo
