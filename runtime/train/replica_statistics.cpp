#include "runtime/train/replica_statistics.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"

namespace rondo {

ReplicaStatistics::ReplicaStatistics(Communicator& comm, Stream& stream, const ParameterList& parameters)
    : comm_(comm), stream_(stream) {
  int64_t bytes = 0;
  for (Parameter* parameter : parameters) {
    if (parameter->trainable) continue;
    require(parameter->desc.dtype == DType::kF32, "parameter {} is {}; statistics must be float32",
            parameter->name, dtype_name(parameter->desc.dtype));
    parameters_.push_back(parameter);
    bytes += parameter->value.bytes();
  }
  weighted_.resize(static_cast<size_t>(bytes) / sizeof(float));
  if (bytes > 0) values_ = stream.device().allocate_host(bytes);
}

void ReplicaStatistics::merge() {
  const int64_t rows = std::exchange(rows_, 0);
  const int64_t global_rows = std::exchange(global_rows_, 0);
  if (weighted_.empty() || comm_.size() == 1 || global_rows == 0) return;

  auto* values = values_.as<float>();
  auto* at = values_.as<std::byte>();
  for (const Parameter* parameter : parameters_) {
    stream_.copy(at, parameter->value.data, parameter->value.bytes());
    at += parameter->value.bytes();
  }
  stream_.synchronize();
  const double weight = static_cast<double>(rows) / static_cast<double>(global_rows);
  for (size_t i = 0; i < weighted_.size(); ++i) {
    weighted_[i] = rows == 0 ? 0.0 : weight * static_cast<double>(values[i]);
  }
  const Span span = span_of(std::span(weighted_));
  comm_.host().all_reduce(span, span, ReduceOp::kSum, {.label = "replica statistics"}).wait();
  for (size_t i = 0; i < weighted_.size(); ++i) values[i] = static_cast<float>(weighted_[i]);
  at = values_.as<std::byte>();
  for (const Parameter* parameter : parameters_) {
    stream_.copy(parameter->value.data, at, parameter->value.bytes());
    at += parameter->value.bytes();
  }
}

}  // namespace rondo
