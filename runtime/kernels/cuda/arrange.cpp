#include "runtime/kernels/arrange.h"

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/arrange_loops.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/element.h"
#include "runtime/kernels/cuda/layer_factories.h"
#include "runtime/kernels/cuda/loops.h"

namespace rondo::cuda {
namespace {

class CudaPad final : public PadKernel {
 public:
  explicit CudaPad(const PadSpec& spec)
      : input_(spec.input), output_{output_shape(spec), spec.input.dtype, {}} {
    const Shape& in = spec.input.shape;
    padding_ = {.batch = in[0],
                .height = in[1],
                .width = in[2],
                .channels = in[3],
                .top = spec.padding[0],
                .bottom = spec.padding[1],
                .left = spec.padding[2],
                .right = spec.padding[3]};
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& input() const override { return input_; }
  const TensorDesc& output() const override { return output_; }
  void pad(const Execution& on, const Tensor& in, const Tensor& out) override {
    with_element(input_.dtype, [&]<class T>(Element<T>) {
      pad_image(handle_of(on.stream), padding_, in.as<const T>(), out.as<T>());
    });
  }
  void crop(const Execution& on, const Tensor& out, const Tensor& in) override {
    with_element(input_.dtype, [&]<class T>(Element<T>) {
      crop_image(handle_of(on.stream), padding_, out.as<const T>(), in.as<T>());
    });
  }

 private:
  TensorDesc input_, output_;
  Padding padding_;
};

class CudaPermute final : public PermuteKernel {
 public:
  explicit CudaPermute(const PermuteSpec& spec) : output_{output_shape(spec), DType::kF32, {}} {
    const Shape& in = spec.input.shape;
    std::array<int64_t, Shape::kMaxRank> strides{};
    int64_t stride = 1;
    for (int axis = in.rank(); axis-- > 0;) {
      strides[static_cast<size_t>(axis)] = stride;
      stride *= in[axis];
    }
    permutation_.rank = in.rank();
    permutation_.count = in.elements();
    for (size_t i = 0; i < spec.axes.size(); ++i) {
      permutation_.extents[i] = output_.shape[static_cast<int>(i)];
      permutation_.strides[i] = strides[static_cast<size_t>(spec.axes[i])];
    }
    if (spec.reversed >= 0) {
      int64_t& step = permutation_.strides[static_cast<size_t>(spec.reversed)];
      permutation_.first = (output_.shape[spec.reversed] - 1) * step;
      step = -step;
    }
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& output() const override { return output_; }
  void run(const Execution& on, const Tensor& in, const Tensor& out) override {
    permute(handle_of(on.stream), permutation_, in.as<const float>(), out.as<float>());
  }

 private:
  TensorDesc output_;
  Permutation permutation_;
};

class CudaBinary final : public BinaryKernel {
 public:
  explicit CudaBinary(const BinarySpec& spec) : spec_(spec) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return spec_.desc; }
  void forward(const Execution& on, const Tensor& x, const Tensor& y, const Tensor& out) override {
    binary_forward(handle_of(on.stream), arguments(x, y), out.as<float>());
  }
  void backward(const Execution& on, const Tensor& x, const Tensor& y, const Tensor& grad_out,
                const Tensor& grad_x, const Tensor& grad_y) override {
    binary_backward(handle_of(on.stream), arguments(x, y), grad_out.as<const float>(), grad_x.as<float>(),
                    grad_y.as<float>());
  }

 private:
  BinaryArguments arguments(const Tensor& x, const Tensor& y) const {
    return {.function = spec_.function,
            .a = spec_.a,
            .b = spec_.b,
            .count = spec_.desc.elements(),
            .x = x.as<const float>(),
            .y = y.as<const float>()};
  }
  BinarySpec spec_;
};

class CudaPenalty final : public PenaltyKernel {
 public:
  explicit CudaPenalty(const PenaltySpec& spec) : spec_(spec) {}
  std::string implementation() const override { return "loop"; }
  int64_t scratch_bytes() const override { return kPenaltyParts * static_cast<int64_t>(sizeof(double)); }
  void add_loss(const Execution& on, const Tensor& weights, double* loss_sum) override {
    add_penalty(handle_of(on.stream), arguments(weights), static_cast<double*>(on.scratch), loss_sum);
  }
  void add_gradient(const Execution& on, const Tensor& weights, const Tensor& grad) override {
    RONDO_CHECK(on.state != nullptr);
    add_penalty_gradient(handle_of(on.stream), arguments(weights), on.state, grad.as<float>());
  }

 private:
  PenaltyArguments arguments(const Tensor& weights) const {
    return {.l1 = spec_.l1,
            .l2 = spec_.l2,
            .rows = spec_.rows,
            .count = spec_.weights.bytes() / static_cast<int64_t>(sizeof(float)),
            .weights = weights.as<const float>()};
  }
  PenaltySpec spec_;
};

}  // namespace

std::unique_ptr<PadKernel> make_pad(const PadSpec& spec) {
  output_shape(spec);  // its checks have the better messages
  require_elements(spec.input, "pad");
  return std::make_unique<CudaPad>(spec);
}

std::unique_ptr<PermuteKernel> make_permute(const PermuteSpec& spec) {
  require_floats(spec.input, "permute");
  return std::make_unique<CudaPermute>(spec);
}

std::unique_ptr<BinaryKernel> make_binary(const BinarySpec& spec) {
  require_floats(spec.desc, "joining two tensors");
  return std::make_unique<CudaBinary>(spec);
}

std::unique_ptr<PenaltyKernel> make_penalty(const PenaltySpec& spec) {
  require(spec.weights.dtype == DType::kF32 && spec.weights.elements() > 0,
          "a penalty works on float32 weights with elements, got {} {}", dtype_name(spec.weights.dtype),
          spec.weights.shape.text());
  require(spec.l1 >= 0.0 && spec.l2 >= 0.0, "a penalty needs l1 and l2 of at least 0, got {} and {}", spec.l1,
          spec.l2);
  return std::make_unique<CudaPenalty>(spec);
}

}  // namespace rondo::cuda
