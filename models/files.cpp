#include "models/files.h"

#include <ctime>
#include <functional>

#include "models/graph/config.h"
#include "models/graph/graph.h"
#include "models/keras/class_names.h"
#include "models/keras/helper_process.h"
#include "models/keras/json.h"
#include "models/keras/keras3_config.h"
#include "models/keras/new_file.h"
#include "models/keras/optimizer_layout.h"
#include "models/keras/training_config.h"
#include "models/keras/weight_layout.h"
#include "models/layers/structure.h"
#include "models/model_state.h"
#include "runtime/base/error.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"

namespace rondo {
namespace {

using keras::Container;
using keras::FileContent;
using keras::Group;

enum class Format : uint8_t { kH5, kH5OfKeras3, kArchive };

Format format_of(const std::string& path, bool whole) {
  if (path.ends_with(".keras")) {
    require(whole, "{}: a .keras archive holds a whole model; weights alone go to .h5 or .weights.h5", path);
    return Format::kArchive;
  }
  if (path.ends_with(".weights.h5")) {
    require(!whole, "{}: .weights.h5 files hold weights alone; a whole model goes to .h5 or .keras", path);
    return Format::kH5OfKeras3;
  }
  require(path.ends_with(".h5") || path.ends_with(".hdf5"), "{}: the name of a file to save must end with {}",
          path, whole ? ".h5, .hdf5 or .keras" : ".h5, .hdf5 or .weights.h5");
  return Format::kH5;
}

void put_text(Group& group, const char* name, std::string text) {
  group.attributes[name] = {.is_list = false, .values = {std::move(text)}};
}

std::string metadata() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%d@%H:%M:%S", &parts);
  return keras::to_json(Config{{"keras_version", keras::kKerasVersion}, {"date_saved", std::string(text)}});
}

const std::string& text_of(const Group& group, const char* name, const std::string& path) {
  const auto found = group.attributes.find(name);
  if (found == group.attributes.end() || found->second.values.size() != 1) {
    raise<FileError>("{}: has no attribute {}; {}", path, name,
                     "a file with weights alone is read by Model::load_weights");
  }
  return found->second.values.front();
}

Model make_model(const ConfigView& view, uint64_t seed);

}  // namespace

struct ModelFiles {
  static Model from(const Structure& structure, uint64_t seed) {
    Model model(structure.inputs, structure.outputs, {.name = structure.name, .seed = seed});
    model.state_->sequential = structure.sequential;
    return model;
  }

  // Runs `action` where it belongs. A model that is trained over ranks, and its template, are saved by the
  // first of them; the others learn whether that worked.
  static void together(const ModelState& state, const std::string& what,
                       const std::function<void(bool)>& action) {
    Communicator* comm = state.comm != nullptr && state.comm->size() > 1 ? state.comm : state.shared->world;
    if (comm == nullptr || comm->size() == 1) return action(true);
    all_or_none(*comm, what, [&] { action(comm->rank() == 0); });
  }

  static ConfigValue structure(const Model& model) {
    return structure_config(model.graph(), model.name(), model.state_->sequential);
  }
  // Null unless the model is compiled.
  static const OptimizerConfig* optimizer(const Model& model) {
    return model.state_->objective ? &model.state_->options.optimizer : nullptr;
  }
  static std::optional<ConfigValue> training(const Model& model) {
    const ModelState& state = *model.state_;
    if (!state.objective) return std::nullopt;
    return keras::training_config(
        {.optimizer = state.options.optimizer, .loss = state.options.loss, .metrics = state.options.metrics});
  }
};

namespace {

Model make_model(const ConfigView& view, uint64_t seed) {
  const Structure structure = structure_from(view, seed);
  try {
    return ModelFiles::from(structure, seed);
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}", view.where(), error.what());
  }
}

FileContent h5_of(const Model& model) {
  FileContent content;
  put_text(content.root, "model_config", keras::to_json(ModelFiles::structure(model)));
  put_text(content.root, "keras_version", keras::kKerasVersion);
  put_text(content.root, "backend", "tensorflow");
  if (const auto training = ModelFiles::training(model)) {
    put_text(content.root, "training_config", keras::to_json(*training));
  }
  keras::put_weights(content.root.make_group("model_weights"), model.graph(), model.get_weights());
  if (const OptimizerConfig* optimizer = ModelFiles::optimizer(model)) {
    const OptimizerState state = model.optimizer_state();
    if (state.iterations > 0) {
      keras::put_optimizer(content.root.make_group("optimizer_weights"), *optimizer, state);
    }
  }
  return content;
}

// The state that goes with the optimizer of a compiled model, where the file has one.
void load_optimizer(Model& model, const Group& root, const std::string& path) {
  const Group* group = root.find_group("optimizer_weights");
  if (group == nullptr || group->attributes.empty()) return;
  const std::string where = path + ": /optimizer_weights";
  try {
    model.set_optimizer_state(keras::take_optimizer(*group, *ModelFiles::optimizer(model), where));
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}; the model can be loaded without it: compile = false", where, error.what());
  }
}

FileContent archive_of(const Model& model) {
  ConfigValue structure = keras::keras3_config(ModelFiles::structure(model));
  FileContent content{.config_json = keras::to_json(structure), .metadata_json = metadata(), .root = {}};
  keras::put_weights_keras3(content.root, model.graph(), model.get_weights());
  return content;
}

FileContent weights_of(const Model& model, Format format) {
  FileContent content;
  if (format == Format::kH5) {
    keras::put_weights(content.root, model.graph(), model.get_weights());
  } else {
    keras::put_weights_keras3(content.root, model.graph(), model.get_weights());
  }
  return content;
}

void compile_as(Model& model, const ConfigView& view) {
  const keras::TrainingConfig training = keras::training_from(view);
  try {
    model.compile({.optimizer = training.optimizer, .loss = training.loss, .metrics = training.metrics});
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}", view.where(), error.what());
  }
}

}  // namespace

void Model::save(const std::string& path) const {
  check_file_name(path, false);
  ModelFiles::together(*state_, "saving the model", [&](bool writes) {
    if (writes) write_model_file(*this, path);
  });
}

void Model::save_weights(const std::string& path) const {
  const Format format = format_of(path, false);
  ModelFiles::together(*state_, "saving the weights", [&](bool writes) {
    if (writes) keras::write_file(path, Container::kH5, weights_of(*this, format));
  });
}

void Model::load_weights(const std::string& path, const LoadWeightsOptions& options) {
  keras::WeightValues values;
  ModelFiles::together(*state_, "loading the weights", [&](bool) {
    const FileContent content = keras::read_file(path);
    values = keras::take_weights(content.root, graph(), path,
                                 options.by_name ? keras::Match::kName : keras::Match::kOrder);
  });
  if (options.by_name) {
    keras::WeightValues now = get_weights();
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].empty()) values[i] = std::move(now[i]);
    }
  }
  set_weights(values);
}

std::string Model::to_json(int indent) const {
  const ConfigValue structure = keras::keras3_config(ModelFiles::structure(*this));
  Config config = *structure.as<Config>();
  config.set("keras_version", keras::kKerasVersion);
  config.set("backend", "tensorflow");
  return keras::to_json(config, indent);
}

Model load_model(const std::string& path, const LoadModelOptions& options) {
  const FileContent content = keras::read_file(path);
  const bool archive = !content.config_json.empty();
  const std::string& text = archive ? content.config_json : text_of(content.root, "model_config", path);
  const std::string where = path + (archive ? ": config.json" : ": model_config");
  const ConfigValue structure = keras::parse_json(text, where);
  const ConfigView view(structure, where);
  Model model = make_model(view, 0);
  model.set_weights(keras::take_weights(content.root, model.graph(), path));
  if (!options.compile) return model;
  if (archive) {
    const auto training = view.find("compile_config");
    if (training && training->is_config() && !training->value().as<Config>()->entries().empty()) {
      compile_as(model, *training);
    }
  } else if (content.root.attributes.contains("training_config")) {
    const std::string place = path + ": training_config";
    const ConfigValue training = keras::parse_json(text_of(content.root, "training_config", path), place);
    compile_as(model, ConfigView(training, place));
    load_optimizer(model, content.root, path);
  }
  return model;
}

void write_model_file(const Model& model, const std::string& path) {
  const bool archive = format_of(path, true) == Format::kArchive;
  keras::write_file(path, archive ? Container::kZip : Container::kH5,
                    archive ? archive_of(model) : h5_of(model));
}

void check_file_name(const std::string& path, bool weights_only) {
  format_of(path, !weights_only);
}

void check_can_write(const std::string& path) {
  const keras::NewFile probe(path);
}

Model model_from_json(std::string_view json, uint64_t seed) {
  const ConfigValue structure = keras::parse_json(json, "the model's JSON");
  return make_model(ConfigView(structure, "the model's JSON"), seed);
}

}  // namespace rondo
