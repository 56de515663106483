#include "runtime/kernels/arrange.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/layer_factories.h"
#include "runtime/kernels/cpu/layout.h"
#include "runtime/kernels/cpu/parallel.h"

namespace rondo::cpu {
namespace {

// Memory as planes of (height, width) cells of `inner` floats: canonical images have a plane for each image,
// images in blocks of channels one for each image and block.
struct Planes {
  int64_t count = 0, inner = 0;
  MemoryDesc output;
};

// Nothing where the layout is neither.
std::optional<Planes> planes_of(const TensorDesc& input, const Shape& output) {
  const auto dims = image_dims(output);
  if (input.layout.canonical()) return Planes{output[0], output[3], canonical_image(output)};
  for (const auto& [tag, block] :
       {std::pair{dnnl::memory::format_tag::nChw8c, 8}, std::pair{dnnl::memory::format_tag::nChw16c, 16}}) {
    const MemoryDesc like(image_dims(input.shape), dnnl::memory::data_type::f32, tag);
    if (!same_memory(image_desc(input), like)) continue;
    return Planes{output[0] * ((output[3] + block - 1) / block), block,
                  MemoryDesc(dims, dnnl::memory::data_type::f32, tag)};
  }
  return std::nullopt;
}

class CpuPad final : public PadKernel {
 public:
  CpuPad(const ContextPtr& context, const PadSpec& spec)
      : threads_(context->threads), padding_(spec.padding), input_(spec.input) {
    const Shape padded = output_shape(spec);
    auto planes = planes_of(spec.input, padded);
    if (!planes) {
      input_.layout = {};
      planes = planes_of(input_, padded);
    }
    planes_ = planes->count;
    inner_ = planes->inner;
    output_ = image_tensor(padded, planes->output);
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& input() const override { return input_; }
  const TensorDesc& output() const override { return output_; }

  void pad(const Execution&, const Tensor& in, const Tensor& out) override {
    const Shape &small = input_.shape, &large = output_.shape;
    const int64_t line = small[2] * inner_, wide = large[2] * inner_;
    const int64_t before = padding_[2] * inner_, after = padding_[3] * inner_;
    each_plane([&](int64_t plane) {
      const float* from = in.as<const float>() + plane * small[1] * line;
      float* to = out.as<float>() + plane * large[1] * wide;
      to = std::fill_n(to, padding_[0] * wide, 0.0f);
      for (int64_t row = 0; row < small[1]; ++row, from += line) {
        to = std::fill_n(to, before, 0.0f);
        to = std::copy_n(from, line, to);
        to = std::fill_n(to, after, 0.0f);
      }
      std::fill_n(to, padding_[1] * wide, 0.0f);
    });
  }
  void crop(const Execution&, const Tensor& out, const Tensor& in) override {
    const Shape &small = input_.shape, &large = output_.shape;
    const int64_t line = small[2] * inner_, wide = large[2] * inner_;
    each_plane([&](int64_t plane) {
      const float* from =
          out.as<const float>() + (plane * large[1] + padding_[0]) * wide + padding_[2] * inner_;
      float* to = in.as<float>() + plane * small[1] * line;
      for (int64_t row = 0; row < small[1]; ++row, from += wide) to = std::copy_n(from, line, to);
    });
  }

 private:
  template <class Body>
  void each_plane(const Body& body) const {
    const int64_t grain = std::max<int64_t>(1, kFloatGrain * planes_ / std::max<int64_t>(1, elements()));
    parallel_ranges(threads_, planes_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) body(plane);
    });
  }
  int64_t elements() const { return output_.shape[1] * output_.shape[2] * inner_ * planes_; }

  int threads_;
  std::array<int64_t, 4> padding_;
  TensorDesc input_, output_;
  int64_t planes_ = 0, inner_ = 0;
};

class CpuPermute final : public PermuteKernel {
 public:
  CpuPermute(const ContextPtr& context, const PermuteSpec& spec) : threads_(context->threads) {
    output_ = {output_shape(spec), DType::kF32, {}};
    const Shape& in = spec.input.shape;
    std::array<int64_t, Shape::kMaxRank> strides{};
    int64_t stride = 1;
    for (int axis = in.rank(); axis-- > 0;) {
      strides[static_cast<size_t>(axis)] = stride;
      stride *= in[axis];
    }
    for (size_t i = 0; i < spec.axes.size(); ++i) {
      strides_[i] = strides[static_cast<size_t>(spec.axes[i])];
    }
    if (spec.reversed >= 0) {
      int64_t& step = strides_[static_cast<size_t>(spec.reversed)];
      first_ = (output_.shape[spec.reversed] - 1) * step;
      step = -step;
    }
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& output() const override { return output_; }

  // Lines of the result's last axis, in order.
  void run(const Execution&, const Tensor& in, const Tensor& out) override {
    const Shape& shape = output_.shape;
    const int last = shape.rank() - 1;
    const int64_t length = shape[last], stride = strides_[static_cast<size_t>(last)];
    const auto* from = in.as<const float>();
    auto* to = out.as<float>();
    const int64_t grain = std::max<int64_t>(1, kFloatGrain / length);
    parallel_ranges(threads_, shape.elements() / length, grain, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        int64_t rest = line, at = first_;
        for (int axis = last; axis-- > 0;) {
          at += rest % shape[axis] * strides_[static_cast<size_t>(axis)];
          rest /= shape[axis];
        }
        float* target = to + line * length;
        if (stride == 1) {
          std::memcpy(target, from + at, static_cast<size_t>(length) * sizeof(float));
        } else {
          for (int64_t i = 0; i < length; ++i) target[i] = from[at + i * stride];
        }
      }
    });
  }

 private:
  int threads_;
  TensorDesc output_;
  std::array<int64_t, Shape::kMaxRank> strides_{};  // in the input, of the result's axes
  int64_t first_ = 0;                               // where the result's first element is in the input
};

}  // namespace

std::unique_ptr<PadKernel> make_pad(ContextPtr context, const PadSpec& spec) {
  output_shape(spec);  // its checks have the better messages
  require_float(spec.input, "pad");
  return std::make_unique<CpuPad>(context, spec);
}

std::unique_ptr<PermuteKernel> make_permute(ContextPtr context, const PermuteSpec& spec) {
  require_canonical(spec.input, "permute");
  return std::make_unique<CpuPermute>(context, spec);
}

}  // namespace rondo::cpu
