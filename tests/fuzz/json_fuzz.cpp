// libFuzzer: any text is a model's structure and how it was compiled, or a FileError.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/graph/config.h"
#include "models/graph/graph.h"
#include "models/keras/json.h"
#include "models/keras/keras3_config.h"
#include "models/keras/training_config.h"
#include "models/layers/structure.h"
#include "runtime/base/error.h"

namespace {

using namespace rondo;

void read_structure(const ConfigView& view) {
  try {
    const Structure structure = structure_from(view);
    const Graph graph(structure.inputs, structure.outputs, 0);
    const ConfigValue config = structure_config(graph, structure.name, structure.sequential);
    keras::to_json(keras::keras3_config(keras::without_keras2_only(config, graph)));
  } catch (const FileError&) {
  } catch (const InvalidArgument&) {  // of the graph; load_model makes it a FileError
  }
}

void read_training(const ConfigView& view) {
  try {
    const keras::TrainingConfig training = keras::training_from(view);
    keras::to_json(keras::training_config(training, KerasDialect::kTfKeras));
    keras::to_json(keras::compile_config(training));
  } catch (const FileError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const ConfigValue value = keras::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    const ConfigView view(value, "fuzz");
    if (!view.is_config()) return 0;
    if (const auto training = view.find("compile_config")) read_training(*training);
    if (view.find("loss")) {
      read_training(view);
    } else {
      read_structure(view);
    }
  } catch (const FileError&) {
  }
  return 0;
}
