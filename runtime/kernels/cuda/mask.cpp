#include "runtime/kernels/mask.h"

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernels/cuda/layer_factories.h"
#include "runtime/kernels/cuda/mask_loops.h"

namespace rondo::cuda {
namespace {

class CudaMask final : public MaskKernel {
 public:
  explicit CudaMask(const MaskSpec& spec) : spec_(spec) {}
  std::string implementation() const override { return "loop"; }
  void find(const Execution& on, const Tensor& in, float value, const Tensor& mask) override {
    find_mask(handle_of(on.stream), spec_, in.as<const float>(), value, mask.as<float>());
  }
  void scale(const Execution& on, const Tensor& in, const Tensor& mask, const Tensor& out) override {
    scale_by_mask(handle_of(on.stream), spec_, in.as<const float>(), mask.as<const float>(), out.as<float>());
  }
  void shares(const Execution& on, const Tensor& mask, const Tensor& shares) override {
    mask_shares(handle_of(on.stream), spec_, mask.as<const float>(), shares.as<float>());
  }

 private:
  MaskSpec spec_;
};

class CudaScoreMask final : public ScoreMaskKernel {
 public:
  explicit CudaScoreMask(const ScoreMaskSpec& spec) : spec_(spec) {}
  std::string implementation() const override { return "loop"; }
  void hide(const Execution& on, const Tensor& scores, const Tensor& query_mask, const Tensor& key_mask,
            const Tensor& out) override {
    hide_scores(handle_of(on.stream), spec_, scores.as<const float>(), query_mask.as<const float>(),
                key_mask.as<const float>(), out.as<float>());
  }

 private:
  ScoreMaskSpec spec_;
};

}  // namespace

std::unique_ptr<MaskKernel> make_mask(const MaskSpec& spec) {
  check(spec);
  return std::make_unique<CudaMask>(spec);
}

std::unique_ptr<ScoreMaskKernel> make_score_mask(const ScoreMaskSpec& spec) {
  check(spec);
  return std::make_unique<CudaScoreMask>(spec);
}

}  // namespace rondo::cuda
