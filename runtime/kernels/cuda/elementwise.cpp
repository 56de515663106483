#include "runtime/kernels/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/element.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/layout.h"
#include "runtime/kernels/cuda/loops.h"
#include "runtime/kernels/geometry.h"

namespace rondo::cuda {
namespace {

class CudaActivation final : public ActivationKernel {
 public:
  CudaActivation(const ActivationFunction& f, const TensorDesc& desc) : f_(f), desc_(desc) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return desc_; }

  void forward(const Execution& on, const Tensor& in, const Tensor& out) override {
    if (f_.kind == Activation::kLinear) return on.stream.copy(out.data, in.data, desc_.bytes());
    with_element(desc_.dtype, [&]<class T>(Element<T>) {
      activation_forward(handle_of(on.stream), f_, in.as<const T>(), out.as<T>(), desc_.elements());
    });
  }
  void backward(const Execution& on, const Tensor& kept, const Tensor& grad_out,
                const Tensor& grad_in) override {
    if (f_.kind == Activation::kLinear) return on.stream.copy(grad_in.data, grad_out.data, desc_.bytes());
    with_element(desc_.dtype, [&]<class T>(Element<T>) {
      activation_backward(handle_of(on.stream), f_, grad_out.as<const T>(), kept.as<const T>(),
                          grad_in.as<T>(), desc_.elements());
    });
  }

 private:
  ActivationFunction f_;
  TensorDesc desc_;
};

class CudaSoftmax final : public SoftmaxKernel {
 public:
  explicit CudaSoftmax(const TensorDesc& desc)
      : desc_(desc), classes_(desc.shape[desc.shape.rank() - 1]), rows_(desc.elements() / classes_) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return desc_; }

  void forward(const Execution& on, const Tensor& in, const Tensor& out) override {
    softmax_forward(handle_of(on.stream), in.as<const float>(), out.as<float>(), rows_, classes_);
  }
  void backward(const Execution& on, const Tensor& out, const Tensor& grad_out,
                const Tensor& grad_in) override {
    softmax_backward(handle_of(on.stream), out.as<const float>(), grad_out.as<const float>(),
                     grad_in.as<float>(), rows_, classes_);
  }

 private:
  TensorDesc desc_;
  int64_t classes_, rows_;
};

// The mask of the last forward is kept, one byte an element.
class CudaDropout final : public DropoutKernel {
 public:
  CudaDropout(Device& device, const DropoutSpec& spec)
      : desc_(spec.desc),
        arguments_{.rows = spec.desc.shape[0],
                   .elements = spec.desc.elements() / spec.desc.shape[0],
                   .stream = spec.stream,
                   // k * 2^-24 >= rate exactly where k >= ceil(rate * 2^24).
                   .threshold = static_cast<uint32_t>(std::ceil(static_cast<double>(spec.rate) * 0x1.0p24)),
                   .scale = 1.0f / (1.0f - spec.rate)},
        mask_(device.allocate(spec.desc.elements())) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return desc_; }

  void forward(const Execution& on, const Tensor& in, const Tensor& out) override {
    RONDO_CHECK(on.state != nullptr);
    with_element(desc_.dtype, [&]<class T>(Element<T>) {
      dropout_forward(handle_of(on.stream), arguments_, on.state, in.as<const T>(), mask_.as<uint8_t>(),
                      out.as<T>());
    });
  }
  void backward(const Execution& on, const Tensor& grad_out, const Tensor& grad_in) override {
    with_element(desc_.dtype, [&]<class T>(Element<T>) {
      apply_mask(handle_of(on.stream), grad_out.as<const T>(), mask_.as<const uint8_t>(), arguments_.scale,
                 grad_in.as<T>(), desc_.elements());
    });
  }

 private:
  TensorDesc desc_;
  DropoutArguments arguments_;
  Buffer mask_;
};

class CudaAdd final : public AddKernel {
 public:
  explicit CudaAdd(const TensorDesc& desc) : desc_(desc) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return desc_; }
  void run(const Execution& on, const Tensor& a, const Tensor& b, const Tensor& out) override {
    with_element(desc_.dtype, [&]<class T>(Element<T>) {
      add(handle_of(on.stream), a.as<const T>(), b.as<const T>(), out.as<T>(), desc_.elements());
    });
  }

 private:
  TensorDesc desc_;
};

class CudaConcat final : public ConcatKernel {
 public:
  explicit CudaConcat(const ConcatSpec& spec) : inputs_(spec.inputs), output_(output_desc(spec)) {
    for (const auto& input : inputs_) require_elements(input, "concat");
    const int rank = output_.shape.rank(), axis = spec.axis < 0 ? spec.axis + rank : spec.axis;
    for (int i = 0; i < axis; ++i) outer_ *= output_.shape[i];
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& input(int index) const override { return inputs_.at(static_cast<size_t>(index)); }
  const TensorDesc& output() const override { return output_; }

  void join(const Execution& on, const std::vector<Tensor>& inputs, const Tensor& out) override {
    walk(inputs, [&](const Tensor& part, int64_t offset, int64_t length, int64_t whole) {
      with_element(output_.dtype, [&]<class T>(Element<T>) {
        copy_runs(handle_of(on.stream), part.as<const T>(), at<T>(out, offset),
                  {outer_, length, length, whole});
      });
    });
  }
  void split(const Execution& on, const Tensor& out, const std::vector<Tensor>& inputs) override {
    walk(inputs, [&](const Tensor& part, int64_t offset, int64_t length, int64_t whole) {
      with_element(output_.dtype, [&]<class T>(Element<T>) {
        copy_runs<T>(handle_of(on.stream), at<T>(out, offset), part.as<T>(), {outer_, length, whole, length});
      });
    });
  }

 private:
  template <class T>
  T* at(const Tensor& whole, int64_t offset) const {
    return reinterpret_cast<T*>(whole.as<char>() + offset * dtype_size(output_.dtype));
  }
  // Calls move(part, its offset in a stretch of the whole, its length in it, the stretch's length).
  template <class Move>
  void walk(const std::vector<Tensor>& parts, const Move& move) const {
    RONDO_CHECK(parts.size() == inputs_.size());
    const int64_t whole = output_.elements() / outer_;
    int64_t offset = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t length = inputs_[i].elements() / outer_;
      move(parts[i], offset, length, whole);
      offset += length;
    }
  }

  std::vector<TensorDesc> inputs_;
  TensorDesc output_;
  int64_t outer_ = 1;
};

class CudaReorder final : public ReorderKernel {
 public:
  CudaReorder(const TensorDesc& from, const TensorDesc& to)
      : bytes_(from.bytes()), same_(from.layout == to.layout) {
    if (same_) return;
    const int64_t filters = from.shape[from.shape.rank() - 1], taps = from.elements() / filters;
    rows_ = from.layout.canonical() ? taps : filters;
    columns_ = from.layout.canonical() ? filters : taps;
  }
  std::string implementation() const override { return same_ ? "copy" : "transpose"; }
  void run(const Execution& on, const Tensor& from, const Tensor& to) override {
    if (same_) return on.stream.copy(to.data, from.data, bytes_);
    transpose(handle_of(on.stream), from.as<const float>(), to.as<float>(), rows_, columns_);
  }

 private:
  int64_t bytes_;
  bool same_;
  int64_t rows_ = 0, columns_ = 0;
};

// Between float32 and a type of 16 bits, one of them `other`.
class CudaConvert final : public ReorderKernel {
 public:
  CudaConvert(const TensorDesc& from, const TensorDesc& to)
      : count_(from.elements()),
        narrows_(from.dtype == DType::kF32),
        other_(narrows_ ? to.dtype : from.dtype) {}
  std::string implementation() const override { return "convert"; }
  void run(const Execution& on, const Tensor& from, const Tensor& to) override {
    with_element(other_, [&]<class T>(Element<T>) {
      if (narrows_) {
        convert(handle_of(on.stream), from.as<const float>(), to.as<T>(), count_);
      } else {
        convert(handle_of(on.stream), from.as<const T>(), to.as<float>(), count_);
      }
    });
  }

 private:
  int64_t count_;
  bool narrows_;
  DType other_;
};

class CudaRound final : public RoundKernel {
 public:
  explicit CudaRound(DType to) : to_(to) {}
  std::string implementation() const override { return "loop"; }
  void run(const Execution& on, std::span<const Tensor> from, std::span<const Tensor> to) override {
    RONDO_CHECK(from.size() == to.size());
    std::array<RoundedArray, kRoundedArrays> arrays;
    for (size_t first = 0; first < from.size(); first += kRoundedArrays) {
      const size_t count = std::min(kRoundedArrays, from.size() - first);
      for (size_t i = 0; i < count; ++i) {
        const Tensor& source = from[first + i];
        arrays[i] = {source.as<const float>(), to[first + i].data, source.desc.elements()};
      }
      const std::span<const RoundedArray> some(arrays.data(), count);
      if (to_ == DType::kBF16) {
        round_arrays<__nv_bfloat16>(handle_of(on.stream), some);
      } else {
        round_arrays<__half>(handle_of(on.stream), some);
      }
    }
  }

 private:
  DType to_;
};

bool has_16_bits(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace

void cannot_fuse(Activation f) {
  raise<InternalError>("activation {} cannot be fused", static_cast<int>(f));
}

std::unique_ptr<ActivationKernel> make_activation(const ActivationFunction& function,
                                                  const TensorDesc& desc) {
  require_elements(desc, "activation");
  return std::make_unique<CudaActivation>(function, desc);
}

std::unique_ptr<SoftmaxKernel> make_softmax(const TensorDesc& desc) {
  require_floats(desc, "softmax");
  return std::make_unique<CudaSoftmax>(desc);
}

std::unique_ptr<DropoutKernel> make_dropout(const ContextPtr& context, const DropoutSpec& spec) {
  require_elements(spec.desc, "dropout");
  require(spec.rate >= 0.0f && spec.rate < 1.0f, "dropout: the rate must lie in [0, 1), got {}", spec.rate);
  return std::make_unique<CudaDropout>(context->device, spec);
}

std::unique_ptr<AddKernel> make_add(const TensorDesc& desc) {
  require_elements(desc, "add");
  return std::make_unique<CudaAdd>(desc);
}

std::unique_ptr<ConcatKernel> make_concat(const ConcatSpec& spec) {
  return std::make_unique<CudaConcat>(spec);
}

std::unique_ptr<RoundKernel> make_round(DType to) {
  require(has_16_bits(to), "weights can be rounded to bfloat16 and float16, not to {}", dtype_name(to));
  return std::make_unique<CudaRound>(to);
}

std::unique_ptr<ReorderKernel> make_reorder(const TensorDesc& from, const TensorDesc& to) {
  const bool narrows = from.dtype == DType::kF32 && has_16_bits(to.dtype);
  const bool widens = has_16_bits(from.dtype) && to.dtype == DType::kF32;
  if (from.shape == to.shape && from.layout.canonical() && to.layout.canonical() && (narrows || widens)) {
    return std::make_unique<CudaConvert>(from, to);
  }
  require(from.shape == to.shape && from.dtype == to.dtype, "cannot reorder {} {} into {} {}",
          dtype_name(from.dtype), from.shape.text(), dtype_name(to.dtype), to.shape.text());
  for (const TensorDesc* desc : {&from, &to}) {
    require(desc->layout.canonical() || filters_first(desc->layout),
            "the layout \"{}\" does not belong to the CUDA backend", desc->layout.text());
  }
  require(from.layout == to.layout || from.dtype == DType::kF32,
          "cannot reorder {} from \"{}\" to \"{}\": only float32 has layouts", dtype_name(from.dtype),
          from.layout.text(), to.layout.text());
  return std::make_unique<CudaReorder>(from, to);
}

}  // namespace rondo::cuda
