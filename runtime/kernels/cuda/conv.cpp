#include "runtime/kernels/conv.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/conv_plan.h"
#include "runtime/kernels/cuda/element.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/layer_factories.h"
#include "runtime/kernels/cuda/layout.h"
#include "runtime/kernels/cuda/loops.h"
#include "runtime/kernels/geometry.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t aligned(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// The same convolution of an image that was padded before.
Conv2DSpec padded_spec(const Conv2DSpec& spec) {
  Conv2DSpec padded = spec;
  const Shape& in = spec.input.shape;
  padded.input.shape = Shape{in[0], in[1] + spec.padding[0] + spec.padding[1],
                             in[2] + spec.padding[2] + spec.padding[3], in[3]};
  padded.padding = {0, 0, 0, 0};
  return padded;
}

GroupedConv grouped(const Conv2DSpec& spec, const Shape& output) {
  return {.window = window_of(spec, output), .filters = spec.filters, .groups = spec.groups};
}

// The parameter lies with its filters first, as cuDNN reads it; where a canonical one is imposed, each use
// goes through a transposed copy. cuDNN gives its gradient in the type that it computes in: one of 16 bits
// goes through a copy as well. Scratch: [that copy][padded image][the library's].
class CudaConv2D final : public Conv2DKernel {
 public:
  CudaConv2D(ContextPtr context, const Conv2DSpec& spec)
      : context_(std::move(context)), spec_(spec), output_{output_shape(spec), spec.input.dtype, {}} {
    kernel_ = {kernel_shape(spec), DType::kF32, {}};
    const Layout own = filters_first_layout(kernel_.elements() * kFloat);
    if (spec.kernel_layout && !spec.kernel_layout->canonical()) {
      require(*spec.kernel_layout == own, "{}: the imposed kernel layout \"{}\" is of another kernel",
              rondo::describe(spec), spec.kernel_layout->text());
    }
    canonical_ = spec.kernel_layout && spec.kernel_layout->canonical();
    if (!canonical_) kernel_.layout = own;
    bias_ = {Shape{spec.filters}, DType::kF32, {}};
    choose();
    const bool converts = plan_ && spec.mode == Mode::kTraining && spec.input.dtype != DType::kF32;
    if (canonical_ || converts) kernel_copy_ = aligned(kernel_.elements() * kFloat);
    if (pads_) image_copy_ = aligned(padded_spec(spec).input.bytes());
  }

  int64_t scratch_bytes() const override {
    int64_t library = plan_ ? plan_->scratch_bytes() : 0;
    if (spec_.mode == Mode::kTraining) {
      const int64_t doubles =
          std::max(plan_ ? 0 : grouped_conv_parts(grouped_) * kernel_.elements(),
                   spec_.use_bias ? column_parts(pixels(), spec_.filters) * spec_.filters : 0);
      library = std::max(library, doubles * static_cast<int64_t>(sizeof(double)));
    }
    return kernel_copy_ + image_copy_ + library;
  }
  std::string implementation() const override {
    std::string text = plan_ ? "cuDNN" : "grouped loop";
    if (plan_ && fuses()) text += " + bias + relu";
    if (pads_) text += ", padded before";
    if (canonical_) text += ", kernel transposed";
    return text;
  }
  const TensorDesc& input() const override { return spec_.input; }
  const TensorDesc& kernel() const override { return kernel_; }
  const TensorDesc& bias() const override { return bias_; }
  const TensorDesc& output() const override { return output_; }

  void forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
               const Tensor& out) override {
    with_element(output_.dtype, [&]<class T>(Element<T>) { run_forward<T>(on, in, kernel, bias, out); });
  }

  void backward_weights(const Execution& on, const Tensor& in, const Tensor& grad_out,
                        const Tensor& grad_kernel, const Tensor& grad_bias) override {
    RONDO_CHECK(spec_.mode == Mode::kTraining);
    with_element(output_.dtype, [&]<class T>(Element<T>) {
      kernel_gradient<T>(on, in, grad_out, grad_kernel);
      if (!spec_.use_bias) return;
      column_sums(handle_of(on.stream), grad_out.as<const T>(), pixels(), spec_.filters,
                  static_cast<double*>(library_execution(on).scratch), grad_bias.as<float>());
    });
  }

  void backward_input(const Execution& on, const Tensor& grad_out, const Tensor& kernel,
                      const Tensor& grad_in) override {
    RONDO_CHECK(spec_.mode == Mode::kTraining && spec_.input_gradient);
    with_element(output_.dtype, [&]<class T>(Element<T>) {
      const T* w = weights<T>(on, kernel);
      const cudaStream_t stream = handle_of(on.stream);
      if (!plan_) return grouped_conv_input(stream, grouped_, grad_out.as<const T>(), w, grad_in.as<T>());
      T* dx = pads_ ? image_copy<T>(on) : grad_in.as<T>();
      plan_->input_gradient(library_execution(on), grad_out.data, w, dx);
      if (pads_) crop_image<T>(stream, padding(), dx, grad_in.as<T>());
    });
  }

 private:
  template <class T>
  void run_forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
                   const Tensor& out) {
    const T* x = image<T>(on, in);
    const T* w = weights<T>(on, kernel);
    const Execution inner = library_execution(on);
    if (!plan_) {
      grouped_conv_forward(handle_of(on.stream), grouped_, x, w, out.as<T>());
    } else if (fuses() && plan_->forward_bias_relu(inner, x, w, bias.data, out.data)) {
      return;
    } else {
      plan_->forward(inner, x, w, out.data);
    }
    bias_activation(handle_of(on.stream), spec_.activation, spec_.use_bias ? bias.as<const T>() : nullptr,
                    out.as<T>(), pixels(), spec_.filters);
  }

  template <class T>
  void kernel_gradient(const Execution& on, const Tensor& in, const Tensor& grad_out,
                       const Tensor& grad_kernel) {
    const T* x = image<T>(on, in);
    const Execution inner = library_execution(on);
    const cudaStream_t stream = handle_of(on.stream);
    if (!plan_) {
      float* dw = canonical_ ? kernel_copy<float>(on) : grad_kernel.as<float>();
      grouped_conv_weights(stream, grouped_, x, grad_out.as<const T>(), static_cast<double*>(inner.scratch),
                           dw);
      if (canonical_) transpose<float, float>(stream, dw, grad_kernel.as<float>(), spec_.filters, taps());
      return;
    }
    const bool copies = canonical_ || output_.dtype != DType::kF32;
    T* dw = copies ? kernel_copy<T>(on) : grad_kernel.as<T>();
    plan_->weight_gradient(inner, x, grad_out.data, dw);
    if (canonical_) {
      transpose<T, float>(stream, dw, grad_kernel.as<float>(), spec_.filters, taps());
    } else if (copies) {
      convert<T, float>(stream, dw, grad_kernel.as<float>(), kernel_.elements());
    }
  }

  // cuDNN, but for what it refuses.
  void choose() {
    grouped_ = grouped(spec_, output_.shape);
    const bool alike = spec_.padding[0] == spec_.padding[1] && spec_.padding[2] == spec_.padding[3];
    plan_ = ConvPlan::make(*context_, alike ? spec_ : padded_spec(spec_), output_.shape);
    pads_ = plan_.has_value() && !alike;
  }
  bool fuses() const { return spec_.use_bias && spec_.activation == Activation::kRelu; }
  int64_t pixels() const { return output_.elements() / spec_.filters; }
  int64_t taps() const { return kernel_.elements() / spec_.filters; }
  Padding padding() const {
    const Shape& in = spec_.input.shape;
    return {.batch = in[0],
            .height = in[1],
            .width = in[2],
            .channels = in[3],
            .top = spec_.padding[0],
            .bottom = spec_.padding[1],
            .left = spec_.padding[2],
            .right = spec_.padding[3]};
  }

  template <class T>
  T* kernel_copy(const Execution& on) const {
    return static_cast<T*>(on.scratch);
  }
  template <class T>
  T* image_copy(const Execution& on) const {
    return reinterpret_cast<T*>(static_cast<char*>(on.scratch) + kernel_copy_);
  }
  Execution library_execution(const Execution& on) const {
    return {on.stream, static_cast<char*>(on.scratch) + kernel_copy_ + image_copy_, on.state};
  }
  template <class T>
  const T* image(const Execution& on, const Tensor& in) const {
    if (!pads_) return in.as<const T>();
    pad_image(handle_of(on.stream), padding(), in.as<const T>(), image_copy<T>(on));
    return image_copy<T>(on);
  }
  template <class T>
  const T* weights(const Execution& on, const Tensor& kernel) const {
    if (!canonical_) return kernel.as<const T>();
    transpose(handle_of(on.stream), kernel.as<const T>(), kernel_copy<T>(on), taps(), spec_.filters);
    return kernel_copy<T>(on);
  }

  ContextPtr context_;
  Conv2DSpec spec_;
  TensorDesc kernel_, bias_, output_;
  std::optional<ConvPlan> plan_;  // absent: the grouped loops
  GroupedConv grouped_;
  bool pads_ = false;       // padded by us: cuDNN pads both sides alike
  bool canonical_ = false;  // the parameter is imposed to be
  int64_t kernel_copy_ = 0, image_copy_ = 0;
};

}  // namespace

std::unique_ptr<Conv2DKernel> make_conv2d(ContextPtr context, const Conv2DSpec& spec) {
  output_shape(spec);  // its checks have the better messages
  require_elements(spec.input, "conv2d");
  const bool depthwise = spec.groups > 1 && spec.groups == spec.input.shape[3];
  if (depthwise && spec.input.dtype == DType::kF32) return make_depthwise(spec);
  return std::make_unique<CudaConv2D>(std::move(context), spec);
}

}  // namespace rondo::cuda
