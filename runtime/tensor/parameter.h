// Parameter: a named piece of a network's state; GradSink: who is told when its gradient is final.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

namespace rondo {

// Values, gradient and optimizer slots of one parameter lie in `desc.layout`, the layout of its forward
// kernel.
struct Parameter {
  std::string name;  // unique in its network: "conv2d/kernel"
  TensorDesc desc;   // logical shape as in Keras: dense (in, units), convolution (kh, kw, in, filters)
  bool trainable =
      true;  // false: statistics that forward passes update (moving means); no gradient, no slots
  Tensor value;
  Tensor grad;           // where backward writes; empty when not trainable
  Buffer value_storage;  // keeps value and grad alive; parameters of a bucket share theirs
  Buffer grad_storage;
};

// Not owning; in graph order (the order of Keras' get_weights).
using ParameterList = std::vector<Parameter*>;

// Receives each trainable parameter exactly once per backward pass, as soon as its gradient is final.
class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual void ready(Parameter& parameter) = 0;
};

}  // namespace rondo
