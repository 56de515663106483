#include "models/program/model_files.h"

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>
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

}  // namespace

Model make_model(const ProgramOptions& options, const Shape& input_shape, int64_t classes) {
  const ModelFileOptions& files = options.files;
  Model model = files.load.empty() ? zoo::make(options.model, input_shape, classes, options.seed)
                                   : load_model(files.load, {.compile = false});
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
