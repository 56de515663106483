// Communicator: collectives among a fixed set of ranks.
//
// Every member calls the same collectives in the same order. Calls return a Work at once; buffers stay
// untouched until it is waited for: by the caller, or by the stream that was ordered behind it. Spans are
// memory of the communicator's device; input and output of a call are either the same span (in place) or do
// not overlap.
//
// Errors. A wrong local argument throws InvalidArgument before anything is sent. Arguments that differ
// between ranks throw MismatchError on every rank and leave the communicator usable. A dead peer, a broken
// transport or a missed deadline throws PeerError, and so does every later call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/device/device.h"

namespace rondo {

enum class ReduceOp : uint8_t { kSum, kAverage, kMin, kMax, kProduct };

struct ConstSpan {
  const void* data = nullptr;
  int64_t count = 0;  // elements, not bytes
  DType dtype = DType::kF32;

  int64_t bytes() const { return count * dtype_size(dtype); }
};

struct Span {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kF32;

  int64_t bytes() const { return count * dtype_size(dtype); }
  operator ConstSpan() const { return {data, count, dtype}; }
};

template <class T>
Span span_of(std::span<T> values) {
  return {values.data(), static_cast<int64_t>(values.size()), dtype_of<T>};
}
template <class T>
ConstSpan span_of(std::span<const T> values) {
  return {values.data(), static_cast<int64_t>(values.size()), dtype_of<T>};
}

// One member of a grouped call: an input and where its result goes.
struct SpanPair {
  ConstSpan in;
  Span out;
};

struct CollectiveOptions {
  const Event* after = nullptr;           // the collective starts when this has happened; null: at once
  std::string_view label = {};            // appears in error messages; must outlive the call only
  std::chrono::milliseconds deadline{0};  // 0: the communicator's default
  // Of reductions: factors of every input and of the result (after the division of an average), equal on all
  // ranks. Floating types are scaled in the accumulation type, before anything is rounded. Integers are
  // scaled in float64 and cut to whole numbers, each input and the result; values out of range become the
  // nearest end of it.
  double prescale = 1.0;
  double postscale = 1.0;
};

// Where the ranks of a communicator run.
struct Topology {
  std::vector<int> host_of;  // for each rank, the index of its host (hosts numbered by lowest rank)
  std::vector<std::string> host_names;  // by host index
  int local_rank = 0;                   // this rank's position among the ranks of its host
  int local_size = 1;
  int hosts() const { return static_cast<int>(host_names.size()); }
};

// "rank 3 (node7)": how messages name a rank.
std::string rank_name(const Topology& topology, int rank);

// A collective in flight, as its communicator keeps it.
class WorkState {
 public:
  virtual bool ready() = 0;  // makes progress where the caller's thread drives it; raises its error
  virtual void wait() = 0;   // blocks the host; raises its error
  virtual void order_before(Stream& stream) = 0;
  // The last Work is gone, after wait() or order_before(): back to the pool. After order_before() the
  // collective may still run.
  virtual void release() = 0;

 protected:
  ~WorkState() = default;
};

// A handle for a collective in flight. An empty Work is done. Destroying one that was neither waited for nor
// ordered before a stream waits for it, and swallows its error: the communicator repeats a sticky one.
class Work {
 public:
  Work() = default;
  explicit Work(WorkState* state) : state_(state) {}
  Work(Work&& other) noexcept
      : state_(std::exchange(other.state_, nullptr)), settled_(std::exchange(other.settled_, false)) {}
  Work& operator=(Work&& other) noexcept {
    if (this != &other) {
      drop();
      state_ = std::exchange(other.state_, nullptr);
      settled_ = std::exchange(other.settled_, false);
    }
    return *this;
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() { drop(); }

  bool ready() { return state_ == nullptr || state_->ready(); }
  void wait() {
    if (state_ != nullptr) state_->wait();
    settled_ = true;
    drop();
  }
  // What is queued on the stream later sees the result; the host does not wait. On hosts this blocks, since
  // the stream is the calling thread.
  void order_before(Stream& stream) {
    if (state_ != nullptr) state_->order_before(stream);
    settled_ = true;
  }
  // Of a collective that was captured, and thrown away with the capture: it never runs.
  void abandon() {
    settled_ = true;
    drop();
  }

 private:
  void drop() noexcept;
  WorkState* state_ = nullptr;
  bool settled_ = false;  // waited for, or ordered before a stream
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const Topology& topology() const = 0;
  virtual std::string name() const = 0;  // for banners and messages: "host ring over MPI", "threads"

  // The communicator of the same ranks for spans in ordinary host memory; this one, where its device's memory
  // is that. It lives as long as this one, and its collectives are ordered among themselves only.
  virtual Communicator& host() { return *this; }

  // Collective. Zeroed memory on which this communicator's collectives run in place, without copies.
  virtual Buffer allocate(int64_t bytes) = 0;

  // out[i] = op over ranks of in[i]. The order of the sum is fixed by size and count: bitwise equal on all
  // ranks and from run to run. Average is for floating types: the sum divided by size(), in the accumulation
  // type. 16-bit floats are accumulated in float32 and rounded once, at the end.
  virtual Work all_reduce(ConstSpan in, Span out, ReduceOp op, const CollectiveOptions& options = {}) = 0;
  // The same for each pair, as one call and one message where that is faster. All pairs have one dtype; no
  // output overlaps another pair's spans. `pairs` itself is needed during the call only.
  virtual Work all_reduce_group(std::span<const SpanPair> pairs, ReduceOp op,
                                const CollectiveOptions& options = {}) = 0;
  // The elements are cut into one block for each rank, of counts[r] elements; counts is the same on all
  // ranks. out = this rank's block of the reduction of `in`. In place: out is this rank's block of `in`,
  // whose other blocks stay as they are.
  virtual Work reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                              const CollectiveOptions& options = {}) = 0;
  // buffer of `root` (a rank of this communicator) to all.
  virtual Work broadcast(Span buffer, int root, const CollectiveOptions& options = {}) = 0;
  // out = the ranks' inputs in rank order; counts may differ: counts[r] is rank r's, the same array on all
  // ranks.
  virtual Work all_gather_v(ConstSpan in, Span out, std::span<const int64_t> counts,
                            const CollectiveOptions& options = {}) = 0;
  // The same with equal counts: out holds size() times as many elements as `in`.
  Work all_gather(ConstSpan in, Span out, const CollectiveOptions& options = {});
  // `in` holds send_counts[r] elements for rank r, in rank order; out gets receive_counts[r] from rank r.
  // What one rank sends to another must be what that one expects, else all ranks throw MismatchError.
  virtual Work all_to_all_v(ConstSpan in, Span out, std::span<const int64_t> send_counts,
                            std::span<const int64_t> receive_counts,
                            const CollectiveOptions& options = {}) = 0;
  // The same with equal counts: the number of elements is a multiple of size().
  Work all_to_all(ConstSpan in, Span out, const CollectiveOptions& options = {});
  // The root's out = the ranks' inputs in rank order, rank r's of counts[r] elements; counts is the same on
  // all ranks. The other ranks' out is not looked at. In place on the root: `in` is its block of out.
  virtual Work gather_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                        const CollectiveOptions& options = {}) = 0;
  Work gather(ConstSpan in, Span out, int root, const CollectiveOptions& options = {});
  // Each rank's out = its block of the root's `in`; counts and in place as above, the other ranks' `in` is
  // not looked at.
  virtual Work scatter_v(ConstSpan in, Span out, std::span<const int64_t> counts, int root,
                         const CollectiveOptions& options = {}) = 0;
  Work scatter(ConstSpan in, Span out, int root, const CollectiveOptions& options = {});
  virtual Work barrier(const CollectiveOptions& options = {}) = 0;

  // Collective. The ranks that pass the same color form a communicator, ordered by key, then rank. A negative
  // color takes part and gets nullptr.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // Collectives can be captured: with options.after, an event that a capturing stream recorded, and with
  // order_before() that stream. They run with every launch of the captured work; the ranks capture, and
  // launch, the same collectives in the same order. What is captured goes before the communicator does.
  virtual bool capturable() const { return false; }
  // Queues captured work that holds collectives of this communicator, which watches it as one collective.
  virtual void launch(CapturedWork& work, Stream& stream) { work.launch(stream); }

  // Lets collectives in flight advance, where no thread of their own does it. Cheap; call it between kernels.
  virtual void progress() = 0;

  // Tells the other ranks, as well as the transport allows, why this rank cannot go on; their next or current
  // wait throws PeerError with this text. Never blocks for long, never throws. Afterwards this communicator
  // only throws.
  virtual void publish_failure(std::string_view reason) noexcept = 0;

 private:
  std::span<const int64_t> equal_counts(int64_t each);

  std::vector<int64_t> equal_counts_;  // kept, so that the forms with equal counts allocate nothing
};

}  // namespace rondo
