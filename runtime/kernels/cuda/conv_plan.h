// cuDNN's convolution of one specification: descriptors, and an algorithm for each direction.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>

#include "runtime/base/handle.h"
#include "runtime/kernels/conv.h"
#include "runtime/kernels/cuda/context.h"

namespace rondo::cuda {

struct WindowGeometry;
// As own kernels read it.
WindowGeometry window_of(const Conv2DSpec& spec, const Shape& output);

template <class T, cudnnStatus_t (*kDestroy)(T)>
struct DescriptorTraits {
  static T empty() { return nullptr; }
  static void destroy(T descriptor) { kDestroy(descriptor); }
};
using TensorDescriptor =
    Handle<cudnnTensorDescriptor_t, DescriptorTraits<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>>;
using FilterDescriptor =
    Handle<cudnnFilterDescriptor_t, DescriptorTraits<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>>;
using ConvDescriptor =
    Handle<cudnnConvolutionDescriptor_t,
           DescriptorTraits<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>>;
using ActivationDescriptor =
    Handle<cudnnActivationDescriptor_t,
           DescriptorTraits<cudnnActivationDescriptor_t, cudnnDestroyActivationDescriptor>>;

// An algorithm that gives the same bits in every run, with its working memory.
template <class Algorithm>
struct Chosen {
  Algorithm algorithm{};
  cudnnMathType_t math = CUDNN_FMA_MATH;
  size_t bytes = 0;
};

// cuDNN pads both sides alike; `spec` must.
class ConvPlan {
 public:
  // Nothing where cuDNN cannot do some direction that the specification needs.
  static std::optional<ConvPlan> make(Context& context, const Conv2DSpec& spec, const Shape& output);

  // x: images, w: (filters, height, width, channels / groups), y: images, bias and gradients: all of the
  // input's type.
  void forward(const Execution& on, const void* x, const void* w, void* y) const;
  // y = relu(conv(x, w) + bias) in one pass; false where cuDNN refuses, and nothing is done.
  bool forward_bias_relu(const Execution& on, const void* x, const void* w, const void* bias, void* y);
  void weight_gradient(const Execution& on, const void* x, const void* dy, void* dw) const;
  void input_gradient(const Execution& on, const void* dy, const void* w, void* dx) const;

  int64_t scratch_bytes() const;

 private:
  explicit ConvPlan(Context& context) : context_(&context) {}
  void describe(const Conv2DSpec& spec, const Shape& output);
  bool choose(const Conv2DSpec& spec);
  bool choose_forward();
  bool choose_weight_gradient();
  bool choose_input_gradient();
  void use(cudnnMathType_t math) const;

  Context* context_;
  TensorDescriptor x_, y_, bias_;
  FilterDescriptor w_;
  ConvDescriptor conv_;
  ActivationDescriptor relu_;
  Chosen<cudnnConvolutionFwdAlgo_t> forward_;
  Chosen<cudnnConvolutionBwdFilterAlgo_t> weights_;
  Chosen<cudnnConvolutionBwdDataAlgo_t> input_;
  bool exact_ = true;  // products of float32 are not rounded
  bool fuses_ = true;  // until the fused call was refused
};

}  // namespace rondo::cuda
