// Tensor: a typed view of memory with a logical shape and a layout that only its backend understands.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "runtime/base/dtype.h"
#include "runtime/tensor/shape.h"

namespace rondo {

// How the elements of a tensor lie in memory, as a backend describes it. Backends derive from this.
class LayoutDetail {
 public:
  virtual ~LayoutDetail() = default;
  virtual int64_t bytes() const = 0;  // memory taken, padding included
  virtual bool equals(const LayoutDetail& other) const = 0;
  virtual std::string text() const = 0;  // the same text on two ranks means the same order in memory
};

// The canonical layout (no detail) is dense and row-major in the logical axes: what files, the Keras API and
// checks see. Any other layout belongs to a backend (blocked channels, transposed weights, padded blocks).
class Layout {
 public:
  Layout() = default;
  explicit Layout(std::shared_ptr<const LayoutDetail> detail) : detail_(std::move(detail)) {}

  bool canonical() const { return detail_ == nullptr; }
  const LayoutDetail* detail() const { return detail_.get(); }
  std::string text() const { return detail_ ? detail_->text() : "canonical"; }
  friend bool operator==(const Layout& a, const Layout& b) {
    if (a.detail_ == b.detail_) return true;
    return a.detail_ && b.detail_ && a.detail_->equals(*b.detail_);
  }

 private:
  std::shared_ptr<const LayoutDetail> detail_;
};

struct TensorDesc {
  Shape shape;
  DType dtype = DType::kF32;
  Layout layout = {};

  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const {
    return layout.canonical() ? elements() * dtype_size(dtype) : layout.detail()->bytes();
  }
  bool operator==(const TensorDesc&) const = default;
};

// A view; whoever made the memory keeps it alive.
struct Tensor {
  TensorDesc desc;
  void* data = nullptr;

  int64_t bytes() const { return desc.bytes(); }
  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // All memory of the tensor as T, in the layout's order, padding included.
  template <class T>
  std::span<T> memory() const {
    return {static_cast<T*>(data), static_cast<size_t>(bytes() / static_cast<int64_t>(sizeof(T)))};
  }
};

}  // namespace rondo
