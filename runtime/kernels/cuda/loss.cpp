#include "runtime/kernels/loss.h"

#include <cmath>

#include "runtime/base/error.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/context.h"
#include "runtime/kernels/cuda/factories.h"
#include "runtime/kernels/cuda/loss_loops.h"

namespace rondo::cuda {
namespace {

// Positions: rows times what lies between the first axis and the last.
struct Sizes {
  explicit Sizes(const TensorDesc& prediction)
      : classes(prediction.shape[prediction.shape.rank() - 1]),
        positions(prediction.elements() / classes),
        share(static_cast<double>(prediction.shape[0]) / static_cast<double>(positions)) {}
  int64_t classes, positions;
  double share;  // of a position in its row
  int64_t parts_bytes() const { return positions * static_cast<int64_t>(sizeof(double)); }
};

template <class Arguments>
void set_weights(Arguments& a, const Tensor& weights) {
  a.weights = weights.as<const float>();
  if (a.weights != nullptr) a.per_weight = a.positions / weights.desc.elements();
}

class CudaLoss final : public LossKernel {
 public:
  CudaLoss(Device& device, const LossSpec& spec)
      : sizes_(spec.prediction), label_(spec.prediction), parts_(device.allocate(sizes_.parts_bytes())) {
    arguments_.loss = spec.loss;
    arguments_.from_logits = spec.from_logits;
    arguments_.positions = sizes_.positions;
    arguments_.classes = sizes_.classes;
    arguments_.smoothing =
        loss::smoothing(spec.loss, static_cast<double>(spec.label_smoothing), sizes_.classes);
    arguments_.delta = static_cast<double>(spec.delta);
    arguments_.gradient_scale = spec.gradient_scale;
    arguments_.share = spec.sum_positions ? 1.0 : sizes_.share;
    if (!sparse()) return;
    const auto extents = spec.prediction.shape.extents();
    label_ = {Shape(extents.first(extents.size() - 1)), DType::kI32, {}};
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& label() const override { return label_; }

  void run(const Execution& on, const Tensor& prediction, const Tensor& label, double* loss_sum,
           const Tensor& grad, const Tensor& weights) override {
    RONDO_CHECK(!grad || on.state != nullptr);
    LossArguments a = arguments_;
    a.prediction = prediction.as<const float>();
    a.label = sparse() ? nullptr : label.as<const float>();
    a.classes_of = sparse() ? label.as<const int32_t>() : nullptr;
    set_weights(a, weights);
    a.state = on.state;
    a.grad = grad.as<float>();
    a.parts = parts_.as<double>();
    cuda::loss(handle_of(on.stream), a, loss_sum);
  }

 private:
  bool sparse() const { return arguments_.loss == Loss::kSparseCategoricalCrossentropy; }

  Sizes sizes_;
  LossArguments arguments_;
  TensorDesc label_;
  Buffer parts_;  // the loss of each position
};

class CudaMetric final : public MetricKernel {
 public:
  CudaMetric(Device& device, const MetricSpec& spec)
      : sizes_(spec.prediction), parts_(device.allocate(3 * sizes_.parts_bytes())) {
    arguments_.metric = spec.metric;
    arguments_.threshold =
        spec.from_logits ? std::log(spec.threshold / (1.0f - spec.threshold)) : spec.threshold;
    arguments_.k = spec.k;
    arguments_.thresholds = spec.thresholds;
    arguments_.positions = sizes_.positions;
    arguments_.classes = sizes_.classes;
    arguments_.share = sizes_.share;
  }
  std::string implementation() const override { return "loop"; }

  void run(const Execution& on, const Tensor& prediction, const Tensor& label, double* sums,
           const Tensor& weights) override {
    const bool sparse = arguments_.metric == Metric::kSparseCategoricalAccuracy ||
                        arguments_.metric == Metric::kSparseTopKCategoricalAccuracy;
    MetricArguments a = arguments_;
    a.prediction = prediction.as<const float>();
    a.label = sparse || a.metric == Metric::kOnes ? nullptr : label.as<const float>();
    a.classes_of = sparse ? label.as<const int32_t>() : nullptr;
    set_weights(a, weights);
    a.parts = parts_.as<double>();
    metric(handle_of(on.stream), a, sums);
  }

 private:
  Sizes sizes_;
  MetricArguments arguments_;
  Buffer parts_;
};

void check_prediction(const TensorDesc& prediction, const char* what) {
  require_floats(prediction, what);
  require(prediction.shape.rank() >= 2, "{} reads (rows, ..., classes), got {}", what,
          prediction.shape.text());
}

}  // namespace

std::unique_ptr<LossKernel> make_loss(const ContextPtr& context, const LossSpec& spec) {
  check_prediction(spec.prediction, "a loss");
  check_loss(spec);
  return std::make_unique<CudaLoss>(context->device, spec);
}

std::unique_ptr<MetricKernel> make_metric(const ContextPtr& context, const MetricSpec& spec) {
  check_prediction(spec.prediction, "a metric");
  check_metric(spec);
  return std::make_unique<CudaMetric>(context->device, spec);
}

}  // namespace rondo::cuda
