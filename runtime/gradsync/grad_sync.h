// GradSync: sums gradients over ranks, bucket by bucket, while backward is still running.
//
//   sync.begin(stream);                           // a step starts
//   fill(sync.tail());                            // loss, metrics, votes: before backward
//   network.backward(sync);                       // calls ready(parameter): full buckets are launched
//   for (int b = 0; b < sync.buckets(); ++b) {
//     const BucketSpan span = sync.wait(b);       // summed over ranks
//     optimizer.update(b, span);
//   }
//   read(sync.tail());                            // summed over ranks
//
// All of this is work on `stream`, the compute stream, where the device works by itself: a bucket is launched
// behind what the stream was given until its last ready(), wait() makes the stream wait and not the host, and
// the spans are memory that only work on the stream may touch.
//
// Gradients must already be scaled by 1 / global batch: the sum over ranks then is what one rank would have
// had. Buckets are launched in plan order whatever the order of ready(), so all ranks issue the same
// collectives in the same order. Nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/gradsync/bucket_plan.h"
#include "runtime/tensor/parameter.h"

namespace rondo {

class Communicator;

// One bucket's weights and gradients: contiguous, in the same order, gaps included (zero in both). Memory of
// the device.
struct BucketSpan {
  std::span<float> weights;
  std::span<const float> gradients;
};

class GradSync final : public GradSink {
 public:
  // Collective. Lays the trainable parameters of `parameters` into buckets (the last parameter first, as
  // backward finishes them), moves their values into one contiguous block per bucket, and points their
  // gradients into memory of the communicator, where they are summed in place: no packing. The parameters
  // keep the memory alive. `tail` float32 values ride behind the last bucket. A later GradSync over the same
  // parameters takes them over. Throws what plan_for throws.
  GradSync(Communicator& comm, Device& device, const ParameterList& parameters, int64_t tail,
           const BucketOptions& options = {});
  ~GradSync() override;

  // The plan that a GradSync of these arguments has, for agreement before the first collective. Throws
  // InvalidArgument when a trainable parameter is not float32, has no values, or appears twice.
  static std::vector<Bucket> plan_for(const ParameterList& parameters, int64_t tail,
                                      const BucketOptions& options = {});

  // Starts a step whose work is queued on `compute`, a stream of the device that outlives the step. Throws
  // InternalError unless every bucket of the step before was waited for.
  void begin(Stream& compute);
  // This rank's extra values until the last bucket is launched, the sums over ranks after it was waited for.
  std::span<float> tail();
  // Throws InternalError when the parameter is unknown or was ready already in this step.
  void ready(Parameter& parameter) override;
  // What a rank without rows does instead of a backward pass: zeros for every gradient, all ready. Throws
  // InternalError when a parameter is ready already.
  void contribute_zeros();

  // The step that was begun will not be finished: its work, captured from the compute stream, was thrown
  // away.
  void abandon();

  int buckets() const { return static_cast<int>(plan_.size()); }
  // Orders the compute stream behind the bucket's sum; on hosts that blocks until it is summed. Throws
  // InternalError when a parameter of it is not ready or when buckets are not waited for in order, and the
  // communicator's errors.
  BucketSpan wait(int bucket);
  // The bucket without waiting: for what comes after it was waited for.
  BucketSpan bucket(int bucket) const;

  std::span<const Bucket> plan() const { return plan_; }
  std::string digest() const { return rondo::digest(plan_); }
  // Seconds this thread spent in collectives (launching, advancing, waiting) since construction.
  double seconds() const;

 private:
  struct State;
  void launch_full_buckets();

  std::vector<Bucket> plan_;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
