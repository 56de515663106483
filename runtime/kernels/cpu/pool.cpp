#include "runtime/kernels/pool.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/operation.h"
#include "runtime/kernels/geometry.h"

namespace rondo::cpu {
namespace {

using dnnl::memory;

class CpuPool2D final : public Pool2DKernel {
 public:
  CpuPool2D(const ContextPtr& context, const Pool2DSpec& spec) {
    const bool training = spec.mode == Mode::kTraining;
    const Shape out = output_shape(spec);
    const auto algorithm = spec.pooling == Pooling::kMax ? dnnl::algorithm::pooling_max
                                                         : dnnl::algorithm::pooling_avg_exclude_padding;
    const memory::dims strides{spec.strides[0], spec.strides[1]};
    const memory::dims window{spec.pool_size[0], spec.pool_size[1]};
    const memory::dims before{spec.padding[0], spec.padding[2]}, after{spec.padding[1], spec.padding[3]};
    const auto make = [&](const MemoryDesc& src) {
      const dnnl::pooling_forward::desc desc(
          training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference, algorithm, src,
          any_desc(image_dims(out)), strides, window, before, after);
      return dnnl::pooling_forward::primitive_desc(desc, base_attributes(), context->engine);
    };
    MemoryDesc src = image_desc(spec.input);
    auto forward = make(src);
    if (is_reference(forward) && !spec.input.layout.canonical()) {
      src = canonical_image(spec.input.shape);
      forward = make(src);
    }
    const MemoryDesc dst = forward.dst_desc();
    input_ = image_tensor(spec.input.shape, src);
    output_ = image_tensor(out, dst);
    std::vector<Operation::Operand> operands{{DNNL_ARG_SRC, src}, {DNNL_ARG_DST, dst}};
    const bool remembers = training && spec.pooling == Pooling::kMax;
    if (remembers) {
      operands.push_back({DNNL_ARG_WORKSPACE, forward.workspace_desc()});
      maxima_ = context->device.allocate(static_cast<int64_t>(forward.workspace_desc().get_size()));
    }
    forward_ = std::make_unique<Operation>(context, forward, operands);
    if (!training) return;
    const dnnl::pooling_backward::desc desc(algorithm, src, dst, strides, window, before, after);
    const dnnl::pooling_backward::primitive_desc backward(desc, base_attributes(), context->engine, forward);
    operands = {{DNNL_ARG_DIFF_DST, dst}, {DNNL_ARG_DIFF_SRC, src}};
    if (remembers) operands.push_back({DNNL_ARG_WORKSPACE, forward.workspace_desc()});
    backward_ = std::make_unique<Operation>(context, backward, operands);
  }

  int64_t scratch_bytes() const override {
    return std::max(forward_->scratch_bytes(), backward_ ? backward_->scratch_bytes() : 0);
  }
  std::string implementation() const override {
    return "oneDNN " + forward_->implementation() +
           (backward_ ? ", backward " + backward_->implementation() : std::string());
  }
  const TensorDesc& input() const override { return input_; }
  const TensorDesc& output() const override { return output_; }

  void forward(const Execution& on, const Tensor& in, const Tensor& out) override {
    if (maxima_) {
      forward_->execute(on, {in.data, out.data, maxima_.data()});
    } else {
      forward_->execute(on, {in.data, out.data});
    }
  }
  void backward(const Execution& on, const Tensor& grad_out, const Tensor& grad_in) override {
    RONDO_CHECK(backward_ != nullptr);
    if (maxima_) {
      backward_->execute(on, {grad_out.data, grad_in.data, maxima_.data()});
    } else {
      backward_->execute(on, {grad_out.data, grad_in.data});
    }
  }

 private:
  TensorDesc input_, output_;
  std::unique_ptr<Operation> forward_, backward_;
  Buffer maxima_;
};

}  // namespace

std::unique_ptr<Pool2DKernel> make_pool2d(ContextPtr context, const Pool2DSpec& spec) {
  require(spec.input.shape.rank() == 4, "pool2d reads (batch, height, width, channels), got {}",
          spec.input.shape.text());
  require_float(spec.input, "pool2d");
  context->use_threads();
  try {
    return std::make_unique<CpuPool2D>(context, spec);
  } catch (const dnnl::error& error) {
    raise<Unavailable>("oneDNN cannot make pool2d {}: {}", spec.input.shape.text(), error.what());
  }
}

}  // namespace rondo::cpu
