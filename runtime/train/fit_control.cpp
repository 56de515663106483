#include "runtime/train/fit_control.h"

#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/train/network.h"

namespace rondo {

double FitControl::learning_rate() const {
  return state_.optimizer->learning_rate();
}

void FitControl::set_learning_rate(double rate) {
  state_.optimizer->set_learning_rate(rate);
}

void FitControl::merge_statistics() {
  state_.statistics->merge();
  state_.stream->synchronize();
}

void FitControl::save_weights(WeightSnapshot& into) {
  state_.statistics->merge();
  const ParameterList& parameters = state_.network.parameters();
  into.values.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    into.values[i].resize(static_cast<size_t>(parameters[i]->value.bytes()));
    state_.stream->copy(into.values[i].data(), parameters[i]->value.data, parameters[i]->value.bytes());
  }
  state_.stream->synchronize();
}

void FitControl::restore_weights(const WeightSnapshot& from) {
  const ParameterList& parameters = state_.network.parameters();
  require(from.values.size() == parameters.size(), "a snapshot of {} weights for a network of {}",
          from.values.size(), parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto bytes = static_cast<int64_t>(from.values[i].size());
    require(bytes == parameters[i]->value.bytes(), "a snapshot of another network: weight {} has other bytes",
            parameters[i]->name);
    state_.stream->copy(parameters[i]->value.data, from.values[i].data(), bytes);
  }
  state_.stream->synchronize();
}

bool FitControl::agree(bool wants_stop) const {
  const auto ranks = static_cast<size_t>(state_.comm.size());
  const double own[] = {wants_stop ? 1.0 : 0.0, learning_rate()};
  const std::vector<int64_t> counts(ranks, 2);
  std::vector<double> all(2 * ranks);
  state_.comm.host()
      .all_gather_v(span_of(std::span<const double>(own)), span_of(std::span(all)), counts,
                    {.label = "votes to stop"})
      .wait();
  bool stop = false;
  for (size_t r = 0; r < ranks; ++r) {
    stop = stop || all[2 * r] != 0.0;
    if (all[2 * r + 1] == all[1]) continue;
    raise<MismatchError>(
        "callbacks have set learning rate {} on rank 0, but {} on rank {}; callbacks that change the rate "
        "must "
        "run on every rank and decide from what all ranks know",
        all[1], all[2 * r + 1], r);
  }
  return stop;
}

}  // namespace rondo
