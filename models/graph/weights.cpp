#include "models/graph/weights.h"

#include "models/graph/layer.h"
#include "runtime/base/error.h"
#include "runtime/device/allocate_for.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {
namespace {

TensorDesc canonical_desc(const TensorDesc& desc) {
  return {.shape = desc.shape, .dtype = desc.dtype};
}

// A reorder outside of any plan: prepared, run once, dropped.
void reorder_once(const Tensor& from, const Tensor& to, KernelBackend& backend, Stream& stream) {
  const auto kernel = backend.reorder(from.desc, to.desc);
  const Buffer scratch = backend.device().allocate(kernel->scratch_bytes());
  kernel->run({.stream = stream, .scratch = scratch.data()}, from, to);
  stream.synchronize();
}

}  // namespace

void put_on_device(Weight& weight, const TensorDesc& desc, KernelBackend& backend, Stream& stream) {
  Parameter& parameter = weight.parameter;
  RONDO_CHECK(desc.elements() == weight.shape.elements() && desc.dtype == DType::kF32);
  parameter.desc = desc;
  parameter.value_storage =
      allocate_for(backend.device(), desc.bytes(), fmt::format("weight {}", parameter.name));
  parameter.value = {.desc = desc, .data = parameter.value_storage.data()};
  write_canonical(weight.values(), parameter.value, backend, stream);
  weight.host = {};
}

std::vector<float> read_canonical(const Tensor& tensor, KernelBackend& backend, Stream& stream) {
  std::vector<float> values(static_cast<size_t>(tensor.desc.elements()));
  const TensorDesc desc = canonical_desc(tensor.desc);
  if (tensor.desc == desc) {
    stream.copy(values.data(), tensor.data, desc.bytes());
    stream.synchronize();
    return values;
  }
  const Buffer staging = backend.device().allocate(desc.bytes());
  reorder_once(tensor, {.desc = desc, .data = staging.data()}, backend, stream);
  stream.copy(values.data(), staging.data(), desc.bytes());
  stream.synchronize();
  return values;
}

void write_canonical(std::span<const float> values, const Tensor& tensor, KernelBackend& backend,
                     Stream& stream) {
  RONDO_CHECK(static_cast<int64_t>(values.size()) == tensor.desc.elements());
  const TensorDesc desc = canonical_desc(tensor.desc);
  if (tensor.desc == desc) {
    stream.copy(tensor.data, values.data(), desc.bytes());
    stream.synchronize();
    return;
  }
  const Buffer staging = backend.device().allocate(desc.bytes());
  stream.copy(staging.data(), values.data(), desc.bytes());
  reorder_once({.desc = desc, .data = staging.data()}, tensor, backend, stream);
}

}  // namespace rondo
