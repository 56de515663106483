// Layouts of this backend: oneDNN memory descriptors behind the LayoutDetail seam.
//
// oneDNN orders the axes of a descriptor logically as (batch, channels, height, width), of a convolution's
// weights as ([groups,] filters, in, kh, kw) and of an inner product's as (units, in [, height, width]); ours
// are (batch, height, width, channels), (kh, kw, in, filters) and (in, units). Only strides and blocks say
// what lies where, so every descriptor here comes with the one of our canonical order over the same axes.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "runtime/tensor/tensor.h"

namespace rondo::cpu {

using MemoryDesc = dnnl::memory::desc;

class DnnlLayout final : public LayoutDetail {
 public:
  DnnlLayout(const MemoryDesc& desc, const MemoryDesc& canonical) : desc_(desc), canonical_(canonical) {}

  int64_t bytes() const override { return static_cast<int64_t>(desc_.get_size()); }
  bool equals(const LayoutDetail& other) const override;
  std::string text() const override;

  const MemoryDesc& desc() const { return desc_; }
  const MemoryDesc& canonical() const { return canonical_; }

 private:
  MemoryDesc desc_;
  MemoryDesc canonical_;
};

// The DnnlLayout of a layout that is not canonical; InvalidArgument where another backend made it.
const DnnlLayout& dnnl_layout(const Layout& layout);

// Canonical where `desc` puts every element where `canonical` does, else a DnnlLayout.
Layout make_layout(const MemoryDesc& desc, const MemoryDesc& canonical);

// Same axes, and every element at the same address (strides of extent-1 axes do not count).
bool same_memory(const MemoryDesc& a, const MemoryDesc& b);

// Some axis is padded: the memory holds more than the elements.
bool padded(const MemoryDesc& desc);

// A dense descriptor in which `order` lists the axes from outermost to innermost.
MemoryDesc strided_desc(const dnnl::memory::dims& dims, std::initializer_list<int> order);
// Any layout that oneDNN likes.
MemoryDesc any_desc(const dnnl::memory::dims& dims);

// Activations: (rows, channels) or (batch, height, width, channels).
dnnl::memory::dims image_dims(const Shape& shape);
MemoryDesc canonical_image(const Shape& shape);
MemoryDesc image_desc(const TensorDesc& desc);
TensorDesc image_tensor(const Shape& shape, const MemoryDesc& desc);

}  // namespace rondo::cpu
