#include "runtime/kernels/cpu/layout.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "runtime/base/error.h"

namespace rondo::cpu {
namespace {

using dnnl::memory;

// Product of the inner blocks along an axis.
int64_t block_of(const dnnl_memory_desc_t& desc, int axis) {
  const auto& blocking = desc.format_desc.blocking;
  int64_t block = 1;
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    if (blocking.inner_idxs[i] == axis) block *= blocking.inner_blks[i];
  }
  return block;
}

}  // namespace

bool same_memory(const MemoryDesc& first, const MemoryDesc& second) {
  const dnnl_memory_desc_t &a = first.data, &b = second.data;
  if (a.ndims != b.ndims || a.data_type != b.data_type || a.offset0 != b.offset0) return false;
  if (a.format_kind != dnnl_blocked || b.format_kind != dnnl_blocked) return first == second;
  const auto &x = a.format_desc.blocking, &y = b.format_desc.blocking;
  if (x.inner_nblks != y.inner_nblks) return false;
  for (int i = 0; i < x.inner_nblks; ++i) {
    if (x.inner_blks[i] != y.inner_blks[i] || x.inner_idxs[i] != y.inner_idxs[i]) return false;
  }
  for (int i = 0; i < a.ndims; ++i) {
    if (a.dims[i] != b.dims[i] || a.padded_dims[i] != b.padded_dims[i]) return false;
    if (a.padded_dims[i] / block_of(a, i) > 1 && x.strides[i] != y.strides[i]) return false;
  }
  return true;
}

bool padded(const MemoryDesc& desc) {
  for (int i = 0; i < desc.data.ndims; ++i) {
    if (desc.data.dims[i] != desc.data.padded_dims[i]) return true;
  }
  return false;
}

bool DnnlLayout::equals(const LayoutDetail& other) const {
  const auto* layout = dynamic_cast<const DnnlLayout*>(&other);
  return layout != nullptr && same_memory(desc_, layout->desc_) &&
         same_memory(canonical_, layout->canonical_);
}

std::string DnnlLayout::text() const {
  const auto& desc = desc_.data;
  if (desc.format_kind != dnnl_blocked) {
    return fmt::format("onednn kind {} bytes {}", static_cast<int>(desc.format_kind), bytes());
  }
  const auto& blocking = desc.format_desc.blocking;
  std::vector<int64_t> strides(blocking.strides, blocking.strides + desc.ndims);
  for (int i = 0; i < desc.ndims; ++i) {
    if (desc.padded_dims[i] / block_of(desc, i) == 1) strides[static_cast<size_t>(i)] = 0;  // says nothing
  }
  std::string text =
      fmt::format("onednn padded {} strides {} canonical {}",
                  fmt::join(desc.padded_dims, desc.padded_dims + desc.ndims, "x"), fmt::join(strides, ","),
                  fmt::join(canonical_.data.format_desc.blocking.strides,
                            canonical_.data.format_desc.blocking.strides + canonical_.data.ndims, ","));
  if (blocking.inner_nblks > 0) text += " blocks";
  for (int i = 0; i < blocking.inner_nblks; ++i) {
    text += fmt::format(" {}@{}", blocking.inner_blks[i], blocking.inner_idxs[i]);
  }
  return text;
}

const DnnlLayout& dnnl_layout(const Layout& layout) {
  const auto* detail = dynamic_cast<const DnnlLayout*>(layout.detail());
  require(detail != nullptr, "the layout \"{}\" does not belong to the oneDNN backend", layout.text());
  return *detail;
}

Layout make_layout(const MemoryDesc& desc, const MemoryDesc& canonical) {
  if (same_memory(desc, canonical)) return {};
  return Layout(std::make_shared<DnnlLayout>(desc, canonical));
}

MemoryDesc strided_desc(const memory::dims& dims, std::initializer_list<int> order) {
  RONDO_CHECK(order.size() == dims.size());
  memory::dims strides(dims.size());
  int64_t stride = 1;
  for (auto axis = std::rbegin(order); axis != std::rend(order); ++axis) {
    strides[static_cast<size_t>(*axis)] = stride;
    stride *= dims[static_cast<size_t>(*axis)];
  }
  return MemoryDesc(dims, memory::data_type::f32, strides);
}

MemoryDesc any_desc(const memory::dims& dims) {
  return MemoryDesc(dims, memory::data_type::f32, memory::format_tag::any);
}

memory::dims image_dims(const Shape& shape) {
  require(shape.rank() == 2 || shape.rank() == 4,
          "expected (rows, channels) or (batch, height, width, channels), got {}", shape.text());
  if (shape.rank() == 2) return {shape[0], shape[1]};
  return {shape[0], shape[3], shape[1], shape[2]};
}

MemoryDesc canonical_image(const Shape& shape) {
  const auto dims = image_dims(shape);
  return shape.rank() == 2 ? strided_desc(dims, {0, 1}) : strided_desc(dims, {0, 2, 3, 1});
}

MemoryDesc image_desc(const TensorDesc& desc) {
  return desc.layout.canonical() ? canonical_image(desc.shape) : dnnl_layout(desc.layout).desc();
}

TensorDesc image_tensor(const Shape& shape, const MemoryDesc& desc) {
  return {.shape = shape, .dtype = DType::kF32, .layout = make_layout(desc, canonical_image(shape))};
}

}  // namespace rondo::cpu
