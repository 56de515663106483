#include "tests/support/guarded_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/batch_norm.h"
#include "runtime/kernels/conv.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/kernels/dense.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/loss.h"
#include "runtime/kernels/pool.h"
#include "runtime/kernels/step.h"
#include "runtime/kernels/update.h"
#include "tests/support/guarded_device.h"

namespace rondo::test {
namespace {

// What every wrapped kernel needs: the device whose addresses it is given, and a stream for the kernel
// inside.
struct Guard {
  explicit Guard(GuardedDevice& guarded)
      : device(guarded), host(make_cpu_device(1)), inner(host->make_stream()) {}

  GuardedDevice& device;
  std::unique_ptr<Device> host;
  std::unique_ptr<Stream> inner;

  Execution open(const Execution& on) const {
    return {.stream = *inner, .scratch = device.open(on.scratch), .state = device.open(on.state)};
  }
  Tensor open(const Tensor& tensor) const { return {tensor.desc, device.open(tensor.data)}; }
  std::vector<Tensor> open(const std::vector<Tensor>& tensors) const {
    std::vector<Tensor> opened;
    for (const Tensor& tensor : tensors) opened.push_back(open(tensor));
    return opened;
  }
  BatchNormParameters open(const BatchNormParameters& p) const {
    return {open(p.gamma), open(p.beta), open(p.moving_mean), open(p.moving_variance)};
  }
  UpdateSpan open(const UpdateSpan& span) const {
    return {device.open(span.weights),
            device.open(span.gradients),
            {device.open(span.slots[0]), device.open(span.slots[1]), device.open(span.slots[2])},
            span.count};
  }
  template <class T>
  T* open(T* pointer) const {
    return device.open(pointer);
  }
  int64_t open(int64_t count) const { return count; }

  // Queues `kernel.function(on, arguments...)`, with everything opened at the time of the call.
  template <class K, class Base, class... Parameters, class... Arguments>
  void queue(K& kernel, void (Base::*function)(const Execution&, Parameters...), const Execution& on,
             const Arguments&... arguments) const {
    const int64_t number = device.counts().kernels++;
    GuardedDevice::queue(on.stream, [&device = device, number, &kernel, function, opened = open(on),
                                     ... values = open(arguments)] {
      device.wait_while_paused();
      if (number >= device.counts().fails_from) raise<DeviceError>("kernel {} failed", number);
      (kernel.*function)(opened, values...);
    });
  }
};
using GuardPtr = std::shared_ptr<const Guard>;

template <class K>
class Wrapped : public K {
 public:
  Wrapped(GuardPtr guard, std::unique_ptr<K> kernel) : guard_(std::move(guard)), kernel_(std::move(kernel)) {}
  int64_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
  std::string implementation() const override { return kernel_->implementation(); }

 protected:
  template <class F, class... Arguments>
  void queue(F function, const Execution& on, const Arguments&... arguments) const {
    guard_->queue(*kernel_, function, on, arguments...);
  }
  GuardPtr guard_;
  std::unique_ptr<K> kernel_;
};

// Convolution and dense have the same functions.
template <class K>
class WrappedLinear final : public Wrapped<K> {
 public:
  using Wrapped<K>::Wrapped;
  const TensorDesc& input() const override { return this->kernel_->input(); }
  const TensorDesc& kernel() const override { return this->kernel_->kernel(); }
  const TensorDesc& bias() const override { return this->kernel_->bias(); }
  const TensorDesc& output() const override { return this->kernel_->output(); }
  void forward(const Execution& on, const Tensor& in, const Tensor& kernel, const Tensor& bias,
               const Tensor& out) override {
    this->queue(&K::forward, on, in, kernel, bias, out);
  }
  void backward_weights(const Execution& on, const Tensor& in, const Tensor& grad_out,
                        const Tensor& grad_kernel, const Tensor& grad_bias) override {
    this->queue(&K::backward_weights, on, in, grad_out, grad_kernel, grad_bias);
  }
  void backward_input(const Execution& on, const Tensor& grad_out, const Tensor& kernel,
                      const Tensor& grad_in) override {
    this->queue(&K::backward_input, on, grad_out, kernel, grad_in);
  }
};

class WrappedPool final : public Wrapped<Pool2DKernel> {
 public:
  using Wrapped::Wrapped;
  const TensorDesc& input() const override { return kernel_->input(); }
  const TensorDesc& output() const override { return kernel_->output(); }
  void forward(const Execution& on, const Tensor& in, const Tensor& out) override {
    queue(&Pool2DKernel::forward, on, in, out);
  }
  void backward(const Execution& on, const Tensor& grad_out, const Tensor& grad_in) override {
    queue(&Pool2DKernel::backward, on, grad_out, grad_in);
  }
};

class WrappedBatchNorm final : public Wrapped<BatchNormKernel> {
 public:
  using Wrapped::Wrapped;
  const TensorDesc& input() const override { return kernel_->input(); }
  const TensorDesc& output() const override { return kernel_->output(); }
  void forward(const Execution& on, const Tensor& in, const BatchNormParameters& parameters,
               const Tensor& out) override {
    queue(&BatchNormKernel::forward, on, in, parameters, out);
  }
  void backward(const Execution& on, const Tensor& in, const Tensor& grad_out,
                const BatchNormParameters& parameters, const Tensor& grad_in, const Tensor& grad_gamma,
                const Tensor& grad_beta) override {
    queue(&BatchNormKernel::backward, on, in, grad_out, parameters, grad_in, grad_gamma, grad_beta);
  }
};

template <class K>
class WrappedActivation final : public Wrapped<K> {
 public:
  using Wrapped<K>::Wrapped;
  const TensorDesc& desc() const override { return this->kernel_->desc(); }
  void forward(const Execution& on, const Tensor& in, const Tensor& out) override {
    this->queue(&K::forward, on, in, out);
  }
  void backward(const Execution& on, const Tensor& out, const Tensor& grad_out,
                const Tensor& grad_in) override {
    this->queue(&K::backward, on, out, grad_out, grad_in);
  }
};

class WrappedDropout final : public Wrapped<DropoutKernel> {
 public:
  using Wrapped::Wrapped;
  const TensorDesc& desc() const override { return kernel_->desc(); }
  void forward(const Execution& on, const Tensor& in, const Tensor& out) override {
    queue(&DropoutKernel::forward, on, in, out);
  }
  void backward(const Execution& on, const Tensor& grad_out, const Tensor& grad_in) override {
    queue(&DropoutKernel::backward, on, grad_out, grad_in);
  }
};

class WrappedAdd final : public Wrapped<AddKernel> {
 public:
  using Wrapped::Wrapped;
  const TensorDesc& desc() const override { return kernel_->desc(); }
  void run(const Execution& on, const Tensor& a, const Tensor& b, const Tensor& out) override {
    queue(&AddKernel::run, on, a, b, out);
  }
};

class WrappedConcat final : public Wrapped<ConcatKernel> {
 public:
  using Wrapped::Wrapped;
  const TensorDesc& input(int index) const override { return kernel_->input(index); }
  const TensorDesc& output() const override { return kernel_->output(); }
  void join(const Execution& on, const std::vector<Tensor>& inputs, const Tensor& out) override {
    queue(&ConcatKernel::join, on, inputs, out);
  }
  void split(const Execution& on, const Tensor& out, const std::vector<Tensor>& inputs) override {
    queue(&ConcatKernel::split, on, out, inputs);
  }
};

class WrappedReorder final : public Wrapped<ReorderKernel> {
 public:
  using Wrapped::Wrapped;
  void run(const Execution& on, const Tensor& from, const Tensor& to) override {
    queue(&ReorderKernel::run, on, from, to);
  }
};

class WrappedLoss final : public Wrapped<LossKernel> {
 public:
  using Wrapped::Wrapped;
  const TensorDesc& label() const override { return kernel_->label(); }
  void run(const Execution& on, const Tensor& prediction, const Tensor& label, double* loss_sum,
           const Tensor& grad, const Tensor& weights) override {
    queue(&LossKernel::run, on, prediction, label, loss_sum, grad, weights);
  }
};

class WrappedMetric final : public Wrapped<MetricKernel> {
 public:
  using Wrapped::Wrapped;
  void run(const Execution& on, const Tensor& prediction, const Tensor& label, double* sum,
           const Tensor& weights) override {
    queue(&MetricKernel::run, on, prediction, label, sum, weights);
  }
};

class WrappedUpdate final : public Wrapped<UpdateKernel> {
 public:
  using Wrapped::Wrapped;
  void run(const Execution& on, const UpdateSpan& span) override { queue(&UpdateKernel::run, on, span); }
};

class WrappedSquareSum final : public Wrapped<SquareSumKernel> {
 public:
  using Wrapped::Wrapped;
  void run(const Execution& on, const float* values, int64_t count, double* sum) override {
    queue(&SquareSumKernel::run, on, values, count, sum);
  }
};

class WrappedClip final : public Wrapped<ClipKernel> {
 public:
  using Wrapped::Wrapped;
  void run(const Execution& on, const double* square_sums, int64_t count, StepState* state,
           double* norm_out) override {
    queue(&ClipKernel::run, on, square_sums, count, state, norm_out);
  }
};

class WrappedTail final : public Wrapped<TailKernel> {
 public:
  using Wrapped::Wrapped;
  void run(const Execution& on, const double* sums, int64_t count, float* tail) override {
    ++guard_->device.counts().steps;
    queue(&TailKernel::run, on, sums, count, tail);
  }
};

class WrappedLossScale final : public Wrapped<LossScaleKernel> {
 public:
  using Wrapped::Wrapped;
  void begin(const Execution& on, const LossScale* scale, StepState* state) override {
    queue(&LossScaleKernel::begin, on, scale, state);
  }
  void decide(const Execution& on, const double* square_sums, int64_t count, LossScale* scale,
              StepState* state) override {
    queue(&LossScaleKernel::decide, on, square_sums, count, scale, state);
  }
};

class GuardedBackend final : public KernelBackend {
 public:
  explicit GuardedBackend(GuardedDevice& device)
      : guard_(std::make_shared<Guard>(device)), backend_(make_cpu_backend(*guard_->host)) {}

  Device& device() const override { return guard_->device; }
  std::string name() const override { return "guarded " + backend_->name(); }

  std::unique_ptr<Conv2DKernel> conv2d(const Conv2DSpec& spec) override {
    return wrap<WrappedLinear<Conv2DKernel>>(backend_->conv2d(spec));
  }
  std::unique_ptr<DenseKernel> dense(const DenseSpec& spec) override {
    return wrap<WrappedLinear<DenseKernel>>(backend_->dense(spec));
  }
  std::unique_ptr<Pool2DKernel> pool2d(const Pool2DSpec& spec) override {
    return wrap<WrappedPool>(backend_->pool2d(spec));
  }
  std::unique_ptr<BatchNormKernel> batch_norm(const BatchNormSpec& spec) override {
    return wrap<WrappedBatchNorm>(backend_->batch_norm(spec));
  }
  std::unique_ptr<ActivationKernel> activation(const ActivationFunction& function,
                                               const TensorDesc& desc) override {
    return wrap<WrappedActivation<ActivationKernel>>(backend_->activation(function, desc));
  }
  std::unique_ptr<SoftmaxKernel> softmax(const TensorDesc& desc) override {
    return wrap<WrappedActivation<SoftmaxKernel>>(backend_->softmax(desc));
  }
  std::unique_ptr<DropoutKernel> dropout(const DropoutSpec& spec) override {
    return wrap<WrappedDropout>(backend_->dropout(spec));
  }
  std::unique_ptr<AddKernel> add(const TensorDesc& desc) override {
    return wrap<WrappedAdd>(backend_->add(desc));
  }
  std::unique_ptr<ConcatKernel> concat(const ConcatSpec& spec) override {
    return wrap<WrappedConcat>(backend_->concat(spec));
  }
  std::unique_ptr<LossKernel> loss(const LossSpec& spec) override {
    return wrap<WrappedLoss>(backend_->loss(spec));
  }
  std::unique_ptr<MetricKernel> metric(const MetricSpec& spec) override {
    return wrap<WrappedMetric>(backend_->metric(spec));
  }
  std::unique_ptr<UpdateKernel> update(const UpdateSpec& spec) override {
    return wrap<WrappedUpdate>(backend_->update(spec));
  }
  std::unique_ptr<SquareSumKernel> square_sum(float clip_value) override {
    return wrap<WrappedSquareSum>(backend_->square_sum(clip_value));
  }
  std::unique_ptr<ClipKernel> clip(double limit) override { return wrap<WrappedClip>(backend_->clip(limit)); }
  std::unique_ptr<TailKernel> tail() override { return wrap<WrappedTail>(backend_->tail()); }
  std::unique_ptr<LossScaleKernel> loss_scale(const LossScaling& scaling) override {
    return wrap<WrappedLossScale>(backend_->loss_scale(scaling));
  }
  std::unique_ptr<ReorderKernel> reorder(const TensorDesc& from, const TensorDesc& to) override {
    return wrap<WrappedReorder>(backend_->reorder(from, to));
  }

 private:
  template <class W, class K>
  std::unique_ptr<W> wrap(std::unique_ptr<K> kernel) const {
    return std::make_unique<W>(guard_, std::move(kernel));
  }

  std::shared_ptr<Guard> guard_;
  std::unique_ptr<KernelBackend> backend_;
};

}  // namespace

std::unique_ptr<KernelBackend> make_guarded_backend(GuardedDevice& device) {
  return std::make_unique<GuardedBackend>(device);
}

}  // namespace rondo::test
