// Sampler: which samples a rank takes in a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rondo {

struct SamplerOptions {
  int64_t size = 0;    // samples in the source
  int64_t batch = 32;  // rows of the global batch, over all ranks
  uint64_t seed = 0;
  bool shuffle = true;  // false: in the order of the source, for evaluation and prediction
  int rank = 0;
  int world = 1;
};

// One rank's part of a step's global batch; it may be empty.
struct Share {
  int64_t first_row = 0;    // position in the global batch
  int64_t rows = 0;         // this rank's
  int64_t global_rows = 0;  // all ranks'

  bool operator==(const Share&) const = default;
};

// The contiguous share [rows r / N, rows (r + 1) / N) of `global_rows` rows that rank r of N takes: shares
// differ by at most one row and cover every row once.
Share share_of(int64_t global_rows, int rank, int world);

// A pure function of (seed, epoch, step, rank, world). The order of an epoch is a permutation of all samples
// drawn from (seed, epoch), so it does not depend on the number of ranks: step t takes its rows [t batch,
// min((t + 1) batch, size)) and the ranks share them. Every sample comes exactly once in an epoch; the last
// batch may be short.
class Sampler {
 public:
  // Throws InvalidArgument for an empty source, a batch below 1, or a rank outside [0, world).
  explicit Sampler(const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }
  int64_t steps() const { return (options_.size + options_.batch - 1) / options_.batch; }  // in an epoch
  int64_t max_rows() const;  // the largest share of any step

  // Draws the order of an epoch, without allocating. A new sampler stands at epoch 0.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }

  Share share(int64_t step) const;
  // The samples of this rank's share in row order; valid until the next set_epoch.
  std::span<const int64_t> indices(int64_t step) const;

 private:
  SamplerOptions options_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;
};

}  // namespace rondo
