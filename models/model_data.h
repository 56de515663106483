// The data of fit, evaluate and predict as a model takes it.
#pragma once

#include <cstdint>
#include <memory>

#include "models/losses/config.h"

namespace rondo {

class Source;
struct ModelState;

// A compiled model's inputs, and the labels of its outputs that have an objective, in the model's order, with
// these weights. `data` must outlive it. Throws InvalidArgument for a model that is not compiled, and for
// what does not fit the model and its losses, with the names of model, data, input and output.
std::shared_ptr<const Source> labelled(const ModelState& state, const Source& data,
                                       const SampleWeights& weights);
// Its inputs alone; the labels are whatever there are.
std::shared_ptr<const Source> unlabelled(const ModelState& state, const Source& data);

// How many there are, 0 where single numbers are labels and nobody says.
int64_t classes_of(const Source& data);

}  // namespace rondo
