#include "runtime/comm/communicator.h"

#include "runtime/base/error.h"

namespace rondo {

std::span<const int64_t> Communicator::equal_counts(int64_t each) {
  equal_counts_.assign(static_cast<size_t>(size()), each);
  return equal_counts_;
}

Work Communicator::all_gather(ConstSpan in, Span out, const CollectiveOptions& options) {
  return all_gather_v(in, out, equal_counts(in.count), options);
}

Work Communicator::all_to_all(ConstSpan in, Span out, const CollectiveOptions& options) {
  require(in.count % size() == 0, "all_to_all: {} elements cannot be divided evenly among {} ranks", in.count,
          size());
  const std::span<const int64_t> counts = equal_counts(in.count / size());
  return all_to_all_v(in, out, counts, counts, options);
}

Work Communicator::gather(ConstSpan in, Span out, int root, const CollectiveOptions& options) {
  return gather_v(in, out, equal_counts(in.count), root, options);
}

Work Communicator::scatter(ConstSpan in, Span out, int root, const CollectiveOptions& options) {
  return scatter_v(in, out, equal_counts(out.count), root, options);
}

void Work::drop() noexcept {
  WorkState* state = std::exchange(state_, nullptr);
  const bool settled = std::exchange(settled_, false);
  if (state == nullptr) return;
  if (!settled) {
    try {
      state->wait();
    } catch (...) {
      // Told to whoever waited; a sticky error comes again with the next call.
    }
  }
  state->release();
}

}  // namespace rondo
