#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tensor/shape.h"

namespace rondo {

// One array of an optimizer's state, as tf.keras names it: "Adam/dense/kernel/m:0".
struct OptimizerWeight {
  std::string name;
  Shape shape;  // of the weight it belongs to; () of Nadam's momentum cache
  std::vector<float> values;
};

// What an optimizer has learned, in the order of tf.keras 2.10's files: behind `iterations`, which they call
// "Adam/iter:0", come Nadam's "Nadam/momentum_cache:0", then the first slot of every trainable weight (in the
// order of the model's weights), then the second one, ...; slot_names() has the slots.
struct OptimizerState {
  int64_t iterations = 0;
  std::vector<OptimizerWeight> weights;  // none before the first fit
};

}  // namespace rondo
