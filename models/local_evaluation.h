#pragma once

#include <cstdint>
#include <vector>

#include "runtime/train/callback.h"

namespace rondo {

class GraphNetwork;
class Source;

// One rank's passes over data, without a trainer.
Logs evaluate_locally(GraphNetwork& network, const Source& data, int64_t batch_size);
// One array for each output.
std::vector<std::vector<float>> predict_locally(GraphNetwork& network, const Source& data,
                                                int64_t batch_size);

}  // namespace rondo
