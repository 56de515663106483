#include "runtime/kernels/dense.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/linear_kernel.h"

namespace rondo::cpu {
namespace {

using dnnl::memory;

// An image is read where it lies: oneDNN's inner product takes a source (rows, channels, height, width) in
// any layout with weights (units, channels, height, width) to match, so the parameter is permuted instead of
// every batch. Its canonical order (height, width, channels, units) is the (features, units) of Keras.
struct View {
  memory::dims src, weights, dst;
  MemoryDesc canonical_src, canonical_weights;
};

View flat_view(int64_t rows, int64_t features, int64_t units) {
  View view{{rows, features}, {units, features}, {rows, units}, {}, {}};
  view.canonical_src = strided_desc(view.src, {0, 1});
  view.canonical_weights = strided_desc(view.weights, {1, 0});
  return view;
}

View image_view(int64_t rows, int64_t height, int64_t width, int64_t channels, int64_t units) {
  View view{{rows, channels, height, width}, {units, channels, height, width}, {rows, units}, {}, {}};
  view.canonical_src = strided_desc(view.src, {0, 2, 3, 1});
  view.canonical_weights = strided_desc(view.weights, {2, 3, 1, 0});
  return view;
}

std::string describe(const DenseSpec& spec) {
  return fmt::format("dense {} to {} units", spec.input.shape.text(), spec.units);
}

// The imposed parameter decides whether the input is seen as an image: another plan may have been offered a
// blocked image where this one reads flat rows, or the reverse.
View choose_view(const DenseSpec& spec) {
  const auto& shape = spec.input.shape;
  const int64_t rows = shape[0], features = shape.sample().elements();
  if (spec.kernel_layout && !spec.kernel_layout->canonical()) {
    const auto& layout = dnnl_layout(*spec.kernel_layout);
    const auto dims = layout.canonical().dims();
    const View view = dims.size() == 4 ? image_view(rows, dims[2], dims[3], dims[1], spec.units)
                                       : flat_view(rows, features, spec.units);
    require(same_memory(layout.canonical(), view.canonical_weights) &&
                view.canonical_src.get_size() == static_cast<size_t>(rows * features) * sizeof(float),
            "{}: the imposed kernel layout \"{}\" is of another kernel", describe(spec), layout.text());
    return view;
  }
  if (spec.input.layout.canonical()) return flat_view(rows, features, spec.units);
  return image_view(rows, shape[1], shape[2], shape[3], spec.units);
}

class DenseMaker final : public LinearMaker {
 public:
  DenseMaker(const Context& context, const DenseSpec& spec, const View& view,
             const std::optional<MemoryDesc>& weights)
      : context_(context), spec_(spec), view_(view), imposed_(weights) {}

  std::vector<LinearLayouts> forward_candidates() const override {
    std::vector<MemoryDesc> sources;
    if (!spec_.input.layout.canonical()) {
      const auto& offered = dnnl_layout(spec_.input.layout).desc();
      if (offered.dims() == view_.src) sources.push_back(offered);
    }
    sources.push_back(view_.canonical_src);
    std::vector<LinearLayouts> list;
    if (imposed_) {
      for (const auto& src : sources) list.push_back({src, *imposed_, output()});
    }
    if (!imposed_ && prefers_transposed(sources.front())) {
      list.push_back({sources.front(), strided_desc(view_.weights, {0, 1}), output()});
    }
    for (const auto& src : sources) list.push_back({src, any_desc(view_.weights), output()});
    return list;
  }

  dnnl::inner_product_forward::primitive_desc make_forward(const LinearLayouts& l) const {
    const auto kind = spec_.mode == Mode::kTraining ? dnnl::prop_kind::forward_training
                                                    : dnnl::prop_kind::forward_inference;
    const auto desc = spec_.use_bias
                          ? dnnl::inner_product_forward::desc(kind, l.src, l.weights, bias(), l.dst)
                          : dnnl::inner_product_forward::desc(kind, l.src, l.weights, l.dst);
    return {desc, fused_attributes(spec_.activation), context_.engine};
  }
  PrimitiveDesc forward(const LinearLayouts& layouts) const override { return make_forward(layouts); }
  PrimitiveDesc input_gradient(const LinearLayouts& l) const override {
    return dnnl::inner_product_backward_data::primitive_desc({l.src, l.weights, l.dst}, base_attributes(),
                                                             context_.engine, hint());
  }
  PrimitiveDesc weight_gradient(const LinearLayouts& l) const override {
    using Weights = dnnl::inner_product_backward_weights;
    const auto desc = spec_.use_bias ? Weights::desc(l.src, l.weights, bias(), l.dst)
                                     : Weights::desc(l.src, l.weights, l.dst);
    return Weights::primitive_desc(desc, base_attributes(), context_.engine, hint());
  }

 private:
  // oneDNN leaves plain weights as (in, units), whose forward product is a quarter slower than that of
  // (units, in), and whose input gradient is as much faster: without an input gradient, transposed wins.
  bool prefers_transposed(const MemoryDesc& src) const {
    if (spec_.input_gradient || view_.src.size() != 2) return false;
    try {
      const auto chosen = make_forward({src, any_desc(view_.weights), output()}).weights_desc().data;
      return chosen.format_kind == dnnl_blocked && chosen.format_desc.blocking.inner_nblks == 0;
    } catch (const dnnl::error&) {
      return false;
    }
  }
  MemoryDesc bias() const { return strided_desc({spec_.units}, {0}); }
  MemoryDesc output() const { return strided_desc(view_.dst, {0, 1}); }
  dnnl::inner_product_forward::primitive_desc hint() const {
    return make_forward({any_desc(view_.src), any_desc(view_.weights), any_desc(view_.dst)});
  }

  const Context& context_;
  const DenseSpec& spec_;
  const View& view_;
  std::optional<MemoryDesc> imposed_;
};

std::optional<MemoryDesc> imposed_weights(const DenseSpec& spec, const View& view) {
  if (!spec.kernel_layout) return std::nullopt;
  if (spec.kernel_layout->canonical()) return view.canonical_weights;
  return dnnl_layout(*spec.kernel_layout).desc();
}

class CpuDense final : public LinearKernel<DenseKernel> {
 public:
  CpuDense(const ContextPtr& context, const DenseSpec& spec, const View& view)
      : LinearKernel(context, DenseMaker(*context, spec, view, imposed_weights(spec, view)),
                     {.what = describe(spec),
                      .use_bias = spec.use_bias,
                      .training = spec.mode == Mode::kTraining,
                      .input_gradient = spec.input_gradient,
                      .weights = imposed_weights(spec, view)}) {
    input_ = {spec.input.shape, DType::kF32, make_layout(operator_.layouts().src, view.canonical_src)};
    kernel_ = {Shape{spec.input.shape.sample().elements(), spec.units}, DType::kF32,
               make_layout(operator_.layouts().weights, view.canonical_weights)};
    bias_ = {Shape{spec.units}, DType::kF32, {}};
    output_ = {Shape{spec.input.shape[0], spec.units}, DType::kF32, {}};
  }
};

}  // namespace

std::unique_ptr<DenseKernel> make_dense(ContextPtr context, const DenseSpec& spec) {
  require_float(spec.input, "dense");
  require(spec.input.shape.rank() == 2 || spec.input.shape.rank() == 4,
          "dense reads (rows, features) or (rows, height, width, channels), got {}", spec.input.shape.text());
  require(spec.units > 0, "{}: the number of units must be positive", describe(spec));
  return std::make_unique<CpuDense>(context, spec, choose_view(spec));
}

}  // namespace rondo::cpu
