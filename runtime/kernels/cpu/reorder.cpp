#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/operation.h"

namespace rondo::cpu {
namespace {

class CopyKernel final : public ReorderKernel {
 public:
  explicit CopyKernel(int64_t bytes) : bytes_(bytes) {}
  std::string implementation() const override { return "copy"; }
  void run(const Execution& on, const Tensor& from, const Tensor& to) override {
    on.stream.copy(to.data, from.data, bytes_);
  }

 private:
  int64_t bytes_;
};

class DnnlReorder final : public ReorderKernel {
 public:
  DnnlReorder(ContextPtr context, const MemoryDesc& from, const MemoryDesc& to)
      : context_(std::move(context)), reorder_(make_reorder(*context_, from, to)) {}
  int64_t scratch_bytes() const override { return reorder_->scratch_bytes(); }
  std::string implementation() const override { return "oneDNN reorder"; }
  void run(const Execution& on, const Tensor& from, const Tensor& to) override {
    context_->use_threads();
    reorder_->set(DNNL_ARG_FROM, from.data);
    reorder_->set(DNNL_ARG_TO, to.data);
    reorder_->execute(*context_, on.scratch);
  }

 private:
  ContextPtr context_;
  std::unique_ptr<BoundPrimitive> reorder_;
};

}  // namespace

std::unique_ptr<ReorderKernel> make_reorder_kernel(ContextPtr context, const TensorDesc& from,
                                                   const TensorDesc& to) {
  require(from.shape == to.shape && from.dtype == to.dtype, "cannot reorder {} {} into {} {}",
          dtype_name(from.dtype), from.shape.text(), dtype_name(to.dtype), to.shape.text());
  if (from.layout == to.layout) return std::make_unique<CopyKernel>(from.bytes());
  // At most one side is canonical; the other knows the canonical order over its own axes.
  const DnnlLayout& known = dnnl_layout(from.layout.canonical() ? to.layout : from.layout);
  const auto side = [&](const Layout& layout) {
    return layout.canonical() ? known.canonical() : dnnl_layout(layout).desc();
  };
  const MemoryDesc source = side(from.layout), target = side(to.layout);
  require(source.dims() == target.dims(),
          "cannot reorder {} from \"{}\" to \"{}\": the layouts differ in axes", from.shape.text(),
          from.layout.text(), to.layout.text());
  context->use_threads();
  try {
    return std::make_unique<DnnlReorder>(context, source, target);
  } catch (const dnnl::error& error) {
    raise<Unavailable>("oneDNN cannot reorder {} from \"{}\" to \"{}\": {}", from.shape.text(),
                       from.layout.text(), to.layout.text(), error.what());
  }
}

}  // namespace rondo::cpu
