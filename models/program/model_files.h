// What `train` does with files of models.
#pragma once

#include <cstdint>

#include "models/model.h"

namespace rondo {

class Source;
class World;
struct ModelFileOptions;
struct ProgramOptions;

// Of the zoo or from the file of --load, with the weights of --load-weights. Throws FileError for files that
// do not fit, and InvalidArgument where the model takes other samples or has fewer outputs than there are
// classes.
Model make_model(const ProgramOptions& options, const Shape& input_shape, int64_t classes);

// Whether the model is to be trained, and not only applied.
bool trains(const ModelFileOptions& files);
// Throws FileError for a file that could not be written after hours of training.
void check_outputs(const ModelFileOptions& files);

// --evaluate and --predict: prints loss and metrics, writes the outputs. Collective.
int apply_model(Model& model, const Source& data, const ProgramOptions& options, World& world);

}  // namespace rondo
