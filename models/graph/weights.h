// Weights on and off a device: values in canonical order against values in a kernel's layout.
#pragma once

#include <span>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace rondo {

class KernelBackend;
class Stream;
struct Parameter;
struct Weight;

// Gives the weight's parameter memory laid out as `desc` says and moves its host values there.
void put_on_device(Weight& weight, const TensorDesc& desc, KernelBackend& backend, Stream& stream);

// The parameter's values (or another tensor laid out like them) in canonical order.
std::vector<float> read_canonical(const Tensor& tensor, KernelBackend& backend, Stream& stream);
void write_canonical(std::span<const float> values, const Tensor& tensor, KernelBackend& backend,
                     Stream& stream);

}  // namespace rondo
