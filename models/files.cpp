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

std::string metadata(KerasDialect dialect) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%d@%H:%M:%S", &parts);
  return keras::to_json(
      Config{{"keras_version", keras::keras_version(dialect)}, {"date_saved", std::string(text)}});
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

  static ConfigValue structure(const Model& model, KerasDialect dialect) {
    ConfigValue config = structure_config(model.graph(), model.name(), model.state_->sequential);
    if (dialect == KerasDialect::kTfKeras) return config;
    return keras::without_keras2_only(config, model.graph());
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

keras::TrainingConfig training_of(const CompileOptions& options) {
  return {.optimizer = options.optimizer,
          .loss = options.loss,
          .loss_weights = options.loss_weights,
          .metrics = options.metrics,
          .weighted_metrics = options.weighted_metrics};
}

FileContent h5_of(const Model& model, KerasDialect dialect) {
  FileContent content;
  put_text(content.root, "model_config", keras::to_json(ModelFiles::structure(model, dialect)));
  put_text(content.root, "keras_version", keras::keras_version(dialect));
  put_text(content.root, "backend", "tensorflow");
  keras::put_weights(content.root.make_group("model_weights"), model.graph(), model.get_weights(), dialect);
  const CompileOptions* compiled = model.compile_options();
  if (compiled == nullptr) return content;
  put_text(content.root, "training_config",
           keras::to_json(keras::training_config(training_of(*compiled), dialect)));
  // Keras 3 cannot go on training with a state from an .h5 file, not even with its own.
  if (dialect == KerasDialect::kKeras3) return content;
  const OptimizerState state = model.optimizer_state();
  if (state.iterations > 0) {
    keras::put_optimizer(content.root.make_group("optimizer_weights"), compiled->optimizer, state);
  }
  return content;
}

// The state that goes with the optimizer of a compiled model, where the file has one.
void load_optimizer(Model& model, const Group& root, const std::string& path, bool archive) {
  const char* place = archive ? "optimizer/vars" : "optimizer_weights";
  const Group* group = root.find_group(place);
  if (group == nullptr || (archive ? group->arrays.empty() : group->attributes.empty())) return;
  const std::string where = fmt::format("{}: /{}", path, place);
  const OptimizerConfig& config = model.compile_options()->optimizer;
  try {
    model.set_optimizer_state(archive ? keras::take_archive_optimizer(*group, config, where)
                                      : keras::take_optimizer(*group, config, where));
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}; the model can be loaded without it: compile = false", where, error.what());
  }
}

FileContent archive_of(const Model& model, KerasDialect dialect) {
  FileContent content;
  const ConfigValue structure = keras::keras3_config(ModelFiles::structure(model, dialect));
  Config config = *structure.as<Config>();
  keras::put_weights_keras3(content.root, model.graph(), model.get_weights(), dialect);
  if (const CompileOptions* compiled = model.compile_options()) {
    if (model.graph().inputs().size() == 1) {
      config.set("build_config", Config{{"input_shape", batched_shape_config(model.input_shape())}});
    }
    config.set("compile_config", keras::compile_config(training_of(*compiled)));
    const OptimizerState state = model.optimizer_state();
    if (state.iterations > 0) {
      keras::put_archive_optimizer(content.root, compiled->optimizer, state, model.graph(), dialect);
    }
  }
  content.config_json = keras::to_json(config);
  content.metadata_json = metadata(dialect);
  return content;
}

FileContent weights_of(const Model& model, Format format, KerasDialect dialect) {
  FileContent content;
  if (format == Format::kH5) {
    keras::put_weights(content.root, model.graph(), model.get_weights(), dialect);
  } else {
    keras::put_weights_keras3(content.root, model.graph(), model.get_weights(), dialect);
  }
  return content;
}

void compile_as(Model& model, const ConfigView& view) {
  const keras::TrainingConfig training = keras::training_from(view);
  try {
    model.compile({.optimizer = training.optimizer,
                   .loss = training.loss,
                   .loss_weights = training.loss_weights,
                   .metrics = training.metrics,
                   .weighted_metrics = training.weighted_metrics});
  } catch (const InvalidArgument& error) {
    raise<FileError>("{}: {}", view.where(), error.what());
  }
}

}  // namespace

void Model::save(const std::string& path, const SaveOptions& options) const {
  check_file_name(path, false);
  ModelFiles::together(*state_, "saving the model", [&](bool writes) {
    if (writes) write_model_file(*this, path, options);
  });
}

void Model::save_weights(const std::string& path, const SaveOptions& options) const {
  const Format format = format_of(path, false);
  ModelFiles::together(*state_, "saving the weights", [&](bool writes) {
    if (writes) keras::write_file(path, Container::kH5, weights_of(*this, format, options.dialect));
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

std::string Model::to_json(int indent, KerasDialect dialect) const {
  const ConfigValue structure = keras::keras3_config(ModelFiles::structure(*this, dialect));
  Config config = *structure.as<Config>();
  config.set("keras_version", keras::keras_version(dialect));
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
      load_optimizer(model, content.root, path, true);
    }
  } else if (content.root.attributes.contains("training_config")) {
    const std::string place = path + ": training_config";
    const ConfigValue training = keras::parse_json(text_of(content.root, "training_config", path), place);
    compile_as(model, ConfigView(training, place));
    load_optimizer(model, content.root, path, false);
  }
  return model;
}

void write_model_file(const Model& model, const std::string& path, const SaveOptions& options) {
  const bool archive = format_of(path, true) == Format::kArchive;
  keras::write_file(path, archive ? Container::kZip : Container::kH5,
                    archive ? archive_of(model, options.dialect) : h5_of(model, options.dialect));
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
