// For which Keras a file is written.
#pragma once

#include <cstdint>

namespace rondo {

// Both read what either writes of most models. They differ in three things, where a file suits one of them:
//   - MultiHeadAttention: its settings, how its calls are written, and the names of its weights in archives;
//   - an optimizer's state in archives, which the other one leaves out with a warning;
//   - which version the file says it is of.
enum class KerasDialect : uint8_t {
  kTfKeras,  // tf.keras and tf_keras 2.x
  kKeras3,
};

}  // namespace rondo
