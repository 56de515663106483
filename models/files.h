// Models from files of Keras and from JSON. Writing them: Model::save, save_weights and to_json.
#pragma once

#include <string>
#include <string_view>

#include "models/model.h"

namespace rondo {

struct LoadModelOptions {
  // Compiles the model as it was when it was saved. Off: only structure and weights are read.
  bool compile = true;
};

// A model from a whole-model .h5 file or a .keras archive, of Keras 2.2 up to 3 or ours: structure, weights
// and, where the file has them, how the model was compiled and what its optimizer has learned. The file
// itself, not its name, says which it is. Every rank reads the file; ranks that found different files are
// told apart when training starts. Throws FileError, which names the file, the place in it and what is wrong
// there: damage, layers or settings that are not supported, weights that do not fit. Damaged and hostile
// files do no other harm: they are read in a process of its own with limits (see
// models/keras/helper_process.h).
Model load_model(const std::string& path, const LoadModelOptions& options = {});

// The structure that Model::to_json or Keras' to_json gave, with fresh weights. Throws FileError with the way
// to what is wrong.
Model model_from_json(std::string_view json, uint64_t seed = 0);

// What Model::save does on the rank that writes, whoever the others are: for ModelCheckpoint, which calls it
// on the first one alone.
void write_model_file(const Model& model, const std::string& path, const SaveOptions& options = {});

// Throws now the InvalidArgument that Model::save (or save_weights) would throw for a name with another
// ending.
void check_file_name(const std::string& path, bool weights_only);
// And the FileError for a folder that does not exist or may not be written to. Leaves nothing behind.
void check_can_write(const std::string& path);

}  // namespace rondo
