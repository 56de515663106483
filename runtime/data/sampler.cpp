#include "runtime/data/sampler.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace rondo {
namespace {

constexpr int64_t kMaxEpochs = int64_t{1} << 24;  // the width of RandomKey::stream

}  // namespace

Share share_of(int64_t global_rows, int rank, int world) {
  const int64_t first = global_rows * rank / world;
  const int64_t end = global_rows * (rank + 1) / world;
  return {.first_row = first, .rows = end - first, .global_rows = global_rows};
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  require(options.size > 0, "the data set is empty; at least one sample is needed");
  require(options.batch > 0, "the batch size is {}; it must be at least 1", options.batch);
  require(options.world > 0 && options.rank >= 0 && options.rank < options.world,
          "rank {} of {} ranks does not exist; ranks count from 0", options.rank, options.world);
  order_.resize(static_cast<size_t>(options.size));
  set_epoch(0);
}

int64_t Sampler::max_rows() const {
  const int64_t rows = std::min(options_.batch, options_.size);
  // Fewer rows can mean a larger share: of 5 ranks, rank 2 takes 1 of 2 rows but none of 3.
  const int64_t last = options_.size - (steps() - 1) * options_.batch;
  return std::max(share_of(rows, options_.rank, options_.world).rows,
                  share_of(last, options_.rank, options_.world).rows);
}

void Sampler::set_epoch(int64_t epoch) {
  require(epoch >= 0 && epoch < kMaxEpochs, "epoch {} is outside 0..{}", epoch, kMaxEpochs - 1);
  if (epoch == epoch_) return;
  if (options_.shuffle) {
    random_permutation(
        {.seed = options_.seed, .purpose = RandomPurpose::kShuffle, .stream = static_cast<uint32_t>(epoch)},
        std::span(order_));
  } else if (epoch_ < 0) {
    std::iota(order_.begin(), order_.end(), int64_t{0});
  }
  epoch_ = epoch;
}

Share Sampler::share(int64_t step) const {
  require(step >= 0 && step < steps(), "step {} does not exist; the epoch has {} steps", step, steps());
  const int64_t rows = std::min(options_.batch, options_.size - step * options_.batch);
  return share_of(rows, options_.rank, options_.world);
}

std::span<const int64_t> Sampler::indices(int64_t step) const {
  const Share mine = share(step);
  const int64_t first = step * options_.batch + mine.first_row;
  return std::span(order_).subspan(static_cast<size_t>(first), static_cast<size_t>(mine.rows));
}

}  // namespace rondo
