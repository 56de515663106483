// Collectives on device memory over NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "runtime/comm/communicator.h"

namespace rondo {

// Arithmetic on spans of device memory that NCCL does not offer. Calls queue on the stream; in place or
// apart.
class SpanArithmetic {
 public:
  virtual ~SpanArithmetic() = default;
  // out = in * factor. Floating types are multiplied in float32 (float64 in float64), integers in float64,
  // cut to whole numbers, and bounded by the type's range.
  virtual void scale(Stream& stream, ConstSpan in, Span out, double factor) = 0;
  // From int16 or uint16 to int32, or back, where the upper bits are dropped. Apart only.
  virtual void convert(Stream& stream, ConstSpan in, Span out) = 0;
};

struct NcclOptions {
  std::chrono::milliseconds deadline = std::chrono::minutes(5);          // of a collective, from its call
  std::chrono::milliseconds connect_deadline = std::chrono::minutes(2);  // of meeting the other ranks
  // Compares the arguments of every call over the host communicator before it is queued. Equal on all ranks.
  bool check_calls = false;
};

// The communicator of the GPUs of the ranks of `host`, each of which holds another one. Collective over
// `host`, through which the ranks meet; `host`, `device` and `arithmetic` outlive it and what is split from
// it. One thread at a time uses a communicator.
//
// Calls queue on a stream of the communicator, of the highest priority; the host does not block, except for
// the first calls, in which NCCL connects. With options.after the collective starts behind that event.
// Reductions are the same bits in every run of a job of one shape, 16-bit floats in the order and with the
// roundings of NCCL.
//
// Failures: a thread looks every 100 milliseconds for NCCL's asynchronous errors and for collectives that
// missed their deadline. Either makes the communicator fail: its kernels are aborted, so streams go on (over
// memory of no meaning), and every later call throws PeerError. NCCL does not compare arguments: calls that
// differ between ranks end at the deadline, or with wrong results, unless check_calls finds them.
//
// Throws PeerError, with NCCL's last message, when the ranks do not meet in time; MismatchError when they run
// different versions of NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device,
                                                     SpanArithmetic& arithmetic,
                                                     const NcclOptions& options = {});

// "2.28.9"
std::string nccl_version();

}  // namespace rondo
