#include "runtime/base/error.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/parallel.h"

namespace rondo::cpu {
namespace {

class CpuSoftmax final : public SoftmaxKernel {
 public:
  CpuSoftmax(const ContextPtr& context, const TensorDesc& desc)
      : threads_(context->threads),
        desc_(desc),
        classes_(desc.shape[desc.shape.rank() - 1]),
        rows_(desc.elements() / classes_),
        grain_(std::max<int64_t>(1, kFloatGrain / 4 / classes_)) {}
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return desc_; }

  void forward(const Execution&, const Tensor& in, const Tensor& out) override {
    each_row([&](int64_t at) {
      const float* x = in.as<const float>() + at;
      float* y = out.as<float>() + at;
      const double sum = exp_shifted(x, max_float(x, classes_), y, classes_);
      scale_floats(y, static_cast<float>(1.0 / sum), y, classes_);
    });
  }
  // dx = y (dy - sum(y dy))
  void backward(const Execution&, const Tensor& out, const Tensor& grad_out, const Tensor& grad_in) override {
    each_row([&](int64_t at) {
      const auto *y = out.as<const float>() + at, *dy = grad_out.as<const float>() + at;
      const auto dot = static_cast<float>(dot_floats(y, dy, classes_));
      softmax_backward_row(y, dy, dot, grad_in.as<float>() + at, classes_);
    });
  }

 private:
  template <class Row>
  void each_row(const Row& row) const {
    parallel_ranges(threads_, rows_, grain_, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(r * classes_);
    });
  }

  int threads_;
  TensorDesc desc_;
  int64_t classes_, rows_, grain_;
};

}  // namespace

std::unique_ptr<SoftmaxKernel> make_softmax(ContextPtr context, const TensorDesc& desc) {
  require_canonical(desc, "softmax");
  return std::make_unique<CpuSoftmax>(context, desc);
}

}  // namespace rondo::cpu
