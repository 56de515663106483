// GradSync: sums gradients over ranks, bucket by bucket, while backward is still running.
//
//   sync.begin();                                  // a step starts
//   fill(sync.tail());                             // loss, metrics, votes: before backward
//   network.backward(sync);                        // calls ready(parameter); full buckets are launched in
//   plan order for (int b = 0; b < sync.buckets(); ++b) {
//     const BucketSpan span = sync.wait(b);        // summed over ranks
//     optimizer.update(b, span);
//   }
//   read(sync.tail());                             // summed over ranks
//
// Gradients must already be scaled by 1 / global batch: the sum over ranks then is what one rank would have
// had.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/gradsync/bucket_plan.h"
#include "runtime/tensor/parameter.h"

namespace rondo {

// One bucket's weights and gradients: contiguous, in the same order, gaps included (zero in both).
struct BucketSpan {
  std::span<float> weights;
  std::span<const float> gradients;
};

class GradSync final : public GradSink {
 public:
  // Collective. Lays the trainable parameters of `parameters` into buckets (the last parameter first, as
  // backward finishes them), moves their values into one contiguous block per bucket, and points their
  // gradients into memory of the communicator, where they are summed in place: no packing. The parameters
  // keep the memory alive. `tail` float32 values ride behind the last bucket. Throws InvalidArgument when a
  // trainable parameter is not float32 or appears twice.
  GradSync(Communicator& comm, Device& device, const ParameterList& parameters, int64_t tail,
           const BucketOptions& options = {});
  ~GradSync() override;

  // Starts a step. Every bucket of the step before must have been waited for.
  void begin();
  // This rank's extra values until the last bucket is launched, the sums over ranks after it was waited for.
  std::span<float> tail();
  // Throws InternalError when the parameter is unknown or was ready already in this step.
  void ready(Parameter& parameter) override;
  // What a rank without rows does instead of a backward pass: zeros for every gradient, all ready.
  void contribute_zeros();

  int buckets() const;
  // Blocks until the bucket is summed. Throws InternalError when a parameter of it is not ready, and the
  // communicator's errors. Buckets are waited for in order.
  BucketSpan wait(int bucket);

  std::span<const Bucket> plan() const { return plan_; }
  std::string digest() const { return rondo::digest(plan_); }

 private:
  struct State;
  void launch_full_buckets();

  Communicator& comm_;
  std::vector<Bucket> plan_;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
