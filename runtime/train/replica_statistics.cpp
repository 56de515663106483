#include "runtime/train/replica_statistics.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"

namespace rondo {

ReplicaStatistics::ReplicaStatistics(Communicator& comm, const ParameterList& parameters) : comm_(comm) {
  size_t count = 0;
  for (Parameter* parameter : parameters) {
    if (parameter->trainable) continue;
    require(parameter->desc.dtype == DType::kF32, "parameter {} is {}; statistics must be float32",
            parameter->name, dtype_name(parameter->desc.dtype));
    parameters_.push_back(parameter);
    count += parameter->value.memory<float>().size();
  }
  weighted_.resize(count);
}

void ReplicaStatistics::merge() {
  const int64_t rows = std::exchange(rows_, 0);
  const int64_t global_rows = std::exchange(global_rows_, 0);
  if (weighted_.empty() || comm_.size() == 1 || global_rows == 0) return;

  const double weight = static_cast<double>(rows) / static_cast<double>(global_rows);
  size_t at = 0;
  for (const Parameter* parameter : parameters_) {
    for (const float value : parameter->value.memory<float>()) {
      weighted_[at++] = rows == 0 ? 0.0 : weight * static_cast<double>(value);
    }
  }
  const Span span = span_of(std::span(weighted_));
  comm_.all_reduce(span, span, ReduceOp::kSum, {.label = "replica statistics"}).wait();
  at = 0;
  for (const Parameter* parameter : parameters_) {
    for (float& value : parameter->value.memory<float>()) value = static_cast<float>(weighted_[at++]);
  }
}

}  // namespace rondo
