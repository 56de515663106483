#include "runtime/kernels/pool.h"

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/element.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/loops.h"
#include "runtime/kernels/geometry.h"

namespace rondo::cuda {
namespace {

// Own kernels: cuDNN's maximum needs input and output in backward, where the interface keeps positions.
class CudaPool2D final : public Pool2DKernel {
 public:
  CudaPool2D(Device& device, const Pool2DSpec& spec)
      : maximum_(spec.pooling == Pooling::kMax), input_(spec.input) {
    const Shape out = output_shape(spec);
    output_ = {out, spec.input.dtype, {}};
    const Shape& in = spec.input.shape;
    geometry_ = {.batch = in[0],
                 .height = in[1],
                 .width = in[2],
                 .channels = in[3],
                 .out_height = out[1],
                 .out_width = out[2],
                 .window_height = spec.pool_size[0],
                 .window_width = spec.pool_size[1],
                 .stride_height = spec.strides[0],
                 .stride_width = spec.strides[1],
                 .top = spec.padding[0],
                 .left = spec.padding[2]};
    if (!maximum_ || spec.mode != Mode::kTraining) return;
    require(spec.pool_size[0] * spec.pool_size[1] < 1 << 16, "pool2d {}: a window has at most 65535 cells",
            in.text());
    maxima_ = device.allocate(output_.elements() * static_cast<int64_t>(sizeof(uint16_t)));
  }

  std::string implementation() const override { return "loop"; }
  const TensorDesc& input() const override { return input_; }
  const TensorDesc& output() const override { return output_; }

  void forward(const Execution& on, const Tensor& in, const Tensor& out) override {
    with_element(input_.dtype, [&]<class T>(Element<T>) {
      if (maximum_) {
        max_pool_forward(handle_of(on.stream), geometry_, in.as<const T>(), out.as<T>(),
                         maxima_.as<uint16_t>());
      } else {
        average_pool_forward(handle_of(on.stream), geometry_, in.as<const T>(), out.as<T>());
      }
    });
  }
  void backward(const Execution& on, const Tensor& grad_out, const Tensor& grad_in) override {
    RONDO_CHECK(maxima_ || !maximum_);
    with_element(input_.dtype, [&]<class T>(Element<T>) {
      if (maximum_) {
        max_pool_backward(handle_of(on.stream), geometry_, grad_out.as<const T>(),
                          maxima_.as<const uint16_t>(), grad_in.as<T>());
      } else {
        average_pool_backward(handle_of(on.stream), geometry_, grad_out.as<const T>(), grad_in.as<T>());
      }
    });
  }

 private:
  bool maximum_;
  TensorDesc input_, output_;
  WindowGeometry geometry_;
  Buffer maxima_;
};

}  // namespace

std::unique_ptr<Pool2DKernel> make_pool2d(const ContextPtr& context, const Pool2DSpec& spec) {
  require_elements(spec.input, "pool2d");
  return std::make_unique<CudaPool2D>(context->device, spec);
}

}  // namespace rondo::cuda
