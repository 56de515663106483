// What `train` does with files of models.
#pragma once

#include <cstdint>

#include "models/model.h"
#include "models/optimizer_state.h"

namespace rondo {

class Source;
class World;
struct ModelFileOptions;
struct ProgramOptions;

// Of the zoo or from the file of --load, with the weights of --load-weights. Throws FileError for files that
// do not fit, and InvalidArgument where the model takes other samples or has fewer outputs than there are
// classes.
Model make_model(const ProgramOptions& options, const Shape& input_shape, int64_t classes);

// How the model is compiled: as the file of --load says, where it does, changed by what the command line
// says; else by the command line. The data has numbers of classes for labels: crossentropy and accuracies of
// one-hot labels become their sparse counterparts.
CompileOptions compile_options(const Model& model, const ProgramOptions& options);
// What the file's optimizer has learned, where training goes on with it; else without iterations.
OptimizerState loaded_state(const Model& model, const ProgramOptions& options);
SaveOptions save_options(const ModelFileOptions& files);

// Whether the model is to be trained, and not only applied.
bool trains(const ModelFileOptions& files);
// Throws FileError for a file that could not be written after hours of training.
void check_outputs(const ModelFileOptions& files);

// --evaluate and --predict: prints loss and metrics, writes the outputs. Collective.
int apply_model(Model& model, const Source& data, const ProgramOptions& options, World& world);

}  // namespace rondo
