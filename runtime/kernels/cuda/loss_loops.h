// Kernels of losses and metrics (losses.cu): see loops.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "runtime/kernels/loss_rules.h"

namespace rondo::cuda {

struct LossArguments {
  Loss loss{};
  bool from_logits = false;
  loss::Smoothing smoothing = {};
  double delta = 1.0;
  int64_t positions = 0, classes = 0;
  double share = 1.0;           // of a position in its row's loss
  double gradient_scale = 1.0;  // of the loss
  const float* prediction = nullptr;
  const float* label = nullptr;         // (positions, classes), or
  const int32_t* classes_of = nullptr;  // (positions)
  const float* weights = nullptr;       // each of per_weight positions; may be null
  int64_t per_weight = 1;
  const StepState* state = nullptr;
  float* grad = nullptr;    // may be null
  double* parts = nullptr;  // room for a double for each position
};
void loss(cudaStream_t stream, const LossArguments& arguments, double* sum);

struct MetricArguments {
  Metric metric{};
  float threshold = 0.5f;
  int64_t k = 5, thresholds = 0;
  int64_t positions = 0, classes = 0;
  double share = 1.0;
  const float* prediction = nullptr;
  const float* label = nullptr;
  const int32_t* classes_of = nullptr;
  const float* weights = nullptr;
  int64_t per_weight = 1;
  double* parts = nullptr;  // room for three doubles for each position
};
void metric(cudaStream_t stream, const MetricArguments& arguments, double* sums);

}  // namespace rondo::cuda
