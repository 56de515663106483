#include "runtime/kernels/conv.h"

#include <fmt/format.h>

#include <array>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/linear_kernel.h"
#include "runtime/kernels/geometry.h"

namespace rondo::cpu {
namespace {

using dnnl::memory;

struct Geometry {
  memory::dims src, weights, dst, bias;
  memory::dims strides, dilates, pad_before, pad_after;
  Shape output, kernel;
  MemoryDesc canonical_weights;
};

Geometry geometry(const Conv2DSpec& spec) {
  const auto& in = spec.input.shape;
  const int64_t channels = in[3], kh = spec.kernel_size[0], kw = spec.kernel_size[1];
  Geometry g;
  g.src = image_dims(in);
  g.output = output_shape(spec);
  g.kernel = kernel_shape(spec);
  g.dst = image_dims(g.output);
  g.bias = {spec.filters};
  if (spec.groups == 1) {
    g.weights = {spec.filters, channels, kh, kw};
    g.canonical_weights = strided_desc(g.weights, {2, 3, 1, 0});
  } else {
    g.weights = {spec.groups, spec.filters / spec.groups, channels / spec.groups, kh, kw};
    g.canonical_weights = strided_desc(g.weights, {3, 4, 2, 0, 1});
  }
  g.strides = {spec.strides[0], spec.strides[1]};
  g.dilates = {spec.dilation[0] - 1, spec.dilation[1] - 1};
  g.pad_before = {spec.padding[0], spec.padding[2]};
  g.pad_after = {spec.padding[1], spec.padding[3]};
  return g;
}

class ConvMaker final : public LinearMaker {
 public:
  ConvMaker(const Context& context, const Conv2DSpec& spec, const Geometry& g,
            const std::optional<MemoryDesc>& weights)
      : context_(context), spec_(spec), g_(g), imposed_(weights) {}

  std::vector<LinearLayouts> forward_candidates() const override {
    std::vector<LinearLayouts> list;
    if (imposed_) list.push_back({any_desc(g_.src), *imposed_, any_desc(g_.dst)});
    list.push_back({any_desc(g_.src), any_desc(g_.weights), any_desc(g_.dst)});
    append_plain(list);
    return list;
  }
  std::vector<LinearLayouts> input_gradient_candidates(const LinearLayouts& forward) const override {
    auto list = LinearMaker::input_gradient_candidates(forward);
    append_plain(list);
    return list;
  }
  // Images of few channels: oneDNN's blocked weight gradient pads them to a whole block of channels, at twice
  // the time of the one on (batch, height, width, channels) including the reorder of the output's gradient.
  std::vector<LinearLayouts> weight_gradient_candidates(const LinearLayouts& forward) const override {
    std::vector<LinearLayouts> list{forward, {forward.src, any_desc(g_.weights), forward.dst}};
    if (g_.src[1] < 8) append_plain(list);
    list.push_back({any_desc(g_.src), any_desc(g_.weights), any_desc(g_.dst)});
    append_plain(list);
    return list;
  }

  dnnl::convolution_forward::primitive_desc make_forward(const LinearLayouts& l) const {
    const auto kind = spec_.mode == Mode::kTraining ? dnnl::prop_kind::forward_training
                                                    : dnnl::prop_kind::forward_inference;
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto desc =
        spec_.use_bias ? dnnl::convolution_forward::desc(kind, direct, l.src, l.weights, bias(), l.dst,
                                                         g_.strides, g_.dilates, g_.pad_before, g_.pad_after)
                       : dnnl::convolution_forward::desc(kind, direct, l.src, l.weights, l.dst, g_.strides,
                                                         g_.dilates, g_.pad_before, g_.pad_after);
    return {desc, fused_attributes(spec_.activation), context_.engine};
  }
  PrimitiveDesc forward(const LinearLayouts& layouts) const override { return make_forward(layouts); }
  PrimitiveDesc input_gradient(const LinearLayouts& l) const override {
    const dnnl::convolution_backward_data::desc desc(dnnl::algorithm::convolution_direct, l.src, l.weights,
                                                     l.dst, g_.strides, g_.dilates, g_.pad_before,
                                                     g_.pad_after);
    return dnnl::convolution_backward_data::primitive_desc(desc, base_attributes(), context_.engine, hint());
  }
  PrimitiveDesc weight_gradient(const LinearLayouts& l) const override {
    using Weights = dnnl::convolution_backward_weights;
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto desc = spec_.use_bias ? Weights::desc(direct, l.src, l.weights, bias(), l.dst, g_.strides,
                                                     g_.dilates, g_.pad_before, g_.pad_after)
                                     : Weights::desc(direct, l.src, l.weights, l.dst, g_.strides, g_.dilates,
                                                     g_.pad_before, g_.pad_after);
    return Weights::primitive_desc(desc, base_attributes(), context_.engine, hint());
  }

 private:
  void append_plain(std::vector<LinearLayouts>& list) const {
    list.push_back({canonical(g_.src), any_desc(g_.weights), canonical(g_.dst)});
    list.push_back(
        {strided_desc(g_.src, {0, 1, 2, 3}), any_desc(g_.weights), strided_desc(g_.dst, {0, 1, 2, 3})});
  }
  static MemoryDesc canonical(const memory::dims& dims) { return strided_desc(dims, {0, 2, 3, 1}); }
  MemoryDesc bias() const { return strided_desc(g_.bias, {0}); }
  dnnl::convolution_forward::primitive_desc hint() const {
    return make_forward({any_desc(g_.src), any_desc(g_.weights), any_desc(g_.dst)});
  }

  const Context& context_;
  const Conv2DSpec& spec_;
  const Geometry& g_;
  std::optional<MemoryDesc> imposed_;
};

std::optional<MemoryDesc> imposed_weights(const Conv2DSpec& spec, const Geometry& g) {
  if (!spec.kernel_layout) return std::nullopt;
  if (spec.kernel_layout->canonical()) return g.canonical_weights;
  const auto& layout = dnnl_layout(*spec.kernel_layout);
  require(same_memory(layout.canonical(), g.canonical_weights),
          "{}: the imposed kernel layout \"{}\" is of another kernel", describe(spec), layout.text());
  return layout.desc();
}

class CpuConv2D final : public LinearKernel<Conv2DKernel> {
 public:
  CpuConv2D(const ContextPtr& context, const Conv2DSpec& spec, const Geometry& g)
      : LinearKernel(context, ConvMaker(*context, spec, g, imposed_weights(spec, g)),
                     {.what = describe(spec),
                      .use_bias = spec.use_bias,
                      .training = spec.mode == Mode::kTraining,
                      .input_gradient = spec.input_gradient,
                      .weights = imposed_weights(spec, g)}) {
    input_ = image_tensor(spec.input.shape, operator_.layouts().src);
    kernel_ = {g.kernel, DType::kF32, make_layout(operator_.layouts().weights, g.canonical_weights)};
    bias_ = {Shape{spec.filters}, DType::kF32, {}};
    output_ = image_tensor(g.output, operator_.layouts().dst);
  }
};

}  // namespace

std::unique_ptr<Conv2DKernel> make_conv2d(ContextPtr context, const Conv2DSpec& spec) {
  const Geometry shapes = geometry(spec);  // its checks have the better messages
  require_float(spec.input, "conv2d");
  return std::make_unique<CpuConv2D>(context, spec, shapes);
}

}  // namespace rondo::cpu
