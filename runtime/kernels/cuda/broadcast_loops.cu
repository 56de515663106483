#include "runtime/kernels/cuda/broadcast_loops.h"

#include "runtime/kernels/cuda/launch.h"
#include "runtime/tensor/step_state.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

const int32_t* skip_of(const StepState* state) {
  return state != nullptr ? &state->skip : nullptr;
}

}  // namespace

void spread_tensor(cudaStream_t stream, const SpreadSizes& sizes, const spread::Spread& f) {
  launch_elements("broadcast", stream, sizes.large,
                  {reads(f.in, sizes.small * kFloat), writes(f.out, sizes.large * kFloat)}, f);
}

void sum_tensor(cudaStream_t stream, const SpreadSizes& sizes, const spread::Sum& f) {
  launch_elements("broadcast gradient", stream, sizes.small,
                  {reads(f.out, sizes.large * kFloat), writes(f.in, sizes.small * kFloat)}, f);
}

void prelu_forward(cudaStream_t stream, const SpreadSizes& sizes, const spread::PreluForward& f) {
  const int64_t bytes = sizes.large * kFloat;
  launch_elements("PReLU", stream, sizes.large,
                  {reads(f.in, bytes), reads(f.alpha, sizes.small * kFloat), writes(f.out, bytes)}, f);
}

void prelu_input(cudaStream_t stream, const SpreadSizes& sizes, const spread::PreluInput& f) {
  const int64_t bytes = sizes.large * kFloat;
  launch_elements(
      "PReLU gradient", stream, sizes.large,
      {reads(f.in, bytes), reads(f.dy, bytes), reads(f.alpha, sizes.small * kFloat), writes(f.dx, bytes)}, f);
}

void prelu_alpha(cudaStream_t stream, const SpreadSizes& sizes, const spread::PreluAlpha& f) {
  const int64_t bytes = sizes.large * kFloat;
  launch_elements("PReLU alpha gradient", stream, sizes.small,
                  {reads(f.in, bytes), reads(f.dy, bytes), writes(f.d_alpha, sizes.small * kFloat)}, f);
}

void constrain_sign(cudaStream_t stream, int64_t count, const StepState* state, float* weights) {
  launch_elements("constraint", stream, count,
                  {reads(state, state != nullptr ? static_cast<int64_t>(sizeof(StepState)) : 0),
                   reads(weights, count * kFloat), writes(weights, count * kFloat)},
                  spread::NonNegative{skip_of(state), weights});
}

void constrain_norm(cudaStream_t stream, int64_t count, const StepState* state, spread::Norm f) {
  f.skip = skip_of(state);
  launch_elements("constraint", stream, f.kept.count,
                  {reads(state, state != nullptr ? static_cast<int64_t>(sizeof(StepState)) : 0),
                   reads(f.w, count * kFloat), writes(f.w, count * kFloat)},
                  f);
}

}  // namespace rondo::cuda
