// The reductions of the communicator over NCCL.
#include "runtime/comm/arguments.h"
#include "runtime/comm/nccl/nccl_blocks.h"
#include "runtime/comm/nccl/nccl_parts.h"

namespace rondo::nccl {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return ncclUint8;
    case DType::kI8:
      return ncclInt8;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kU16:
    case DType::kI16:
      break;  // reduced as int32
  }
  raise<InternalError>("NCCL has no type {}", dtype_name(dtype));
}

// NCCL has no 16-bit integers: they are widened, reduced, and cut back, which gives their own sums and
// products modulo 2^16.
bool widened(DType dtype) {
  return dtype == DType::kU16 || dtype == DType::kI16;
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kAverage:
      return ncclAvg;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
  }
  raise<InternalError>("unknown reduction {}", static_cast<int>(op));
}

}  // namespace

// Where an operand of a reduction lies while NCCL works on it.
ncclDataType_t NcclCommunicator::working_type(DType dtype) {
  return nccl_type(widened(dtype) ? DType::kI32 : dtype);
}

// Scales are kernels before and after.
Work NcclCommunicator::reduce_pairs(std::span<const SpanPair> pairs, const Signature& plain, ReduceOp op,
                                    const CollectiveOptions& options) {
  const DType dtype = pairs.empty() ? DType::kF32 : pairs[0].out.dtype;
  const ncclDataType_t type = working_type(dtype);
  Signature call = plain;
  if (!begin(call, options)) return refuse(call);
  const bool before = options.prescale != 1.0, behind = options.postscale != 1.0, wide = widened(dtype);
  int64_t elements = 0;
  for (const SpanPair& pair : pairs) {
    if (before && pair.in.count > 0) arithmetic_.scale(*stream_, pair.in, pair.out, options.prescale);
    elements += pair.in.count;
  }
  auto* wides = wide ? static_cast<int32_t*>(staging(elements * 4)) : nullptr;
  if (wide) convert_pairs(pairs, wides, before, true);
  group("ncclAllReduce", [&](ncclComm_t comm, ncclResult_t& all) {
    int32_t* place = wides;
    for (const SpanPair& pair : pairs) {
      if (pair.in.count == 0) continue;
      const void* from = wide ? place : before ? pair.out.data : pair.in.data;
      join(all, ncclAllReduce(from, wide ? place : pair.out.data, static_cast<size_t>(pair.in.count), type,
                              nccl_op(op), comm, queue()));
      if (wide) place += pair.in.count;
    }
  });
  if (wide) convert_pairs(pairs, wides, before, false);
  for (const SpanPair& pair : pairs) {
    if (behind && pair.in.count > 0) arithmetic_.scale(*stream_, pair.out, pair.out, options.postscale);
  }
  return finish(call, options);
}

// All pairs into int32s, one behind the other, or back into their outputs.
void NcclCommunicator::convert_pairs(std::span<const SpanPair> pairs, int32_t* wides, bool scaled,
                                     bool there) {
  for (const SpanPair& pair : pairs) {
    if (pair.in.count == 0) continue;
    const Span wide{wides, pair.in.count, DType::kI32};
    if (there) {
      arithmetic_.convert(*stream_, scaled ? ConstSpan(pair.out) : pair.in, wide);
    } else {
      arithmetic_.convert(*stream_, wide, pair.out);
    }
    wides += pair.in.count;
  }
}

Work NcclCommunicator::reduce_scatter(ConstSpan in, Span out, std::span<const int64_t> counts, ReduceOp op,
                                      const CollectiveOptions& options) {
  check_reduce_scatter(in, out, counts, op, rank(), size(), options);
  const ncclDataType_t type = working_type(in.dtype);
  Signature call = make_reduction(CollectiveKind::kReduceScatter, in, op, options);
  call.set_counts(counts);
  if (!begin(call, options)) return refuse(call);
  const bool wide = widened(in.dtype), scaled = options.prescale != 1.0;
  ConstSpan from = in;
  Span to = out;
  if (in.count > 0 && (wide || scaled)) {
    // Staging: [scaled input][widened input][widened output]
    const int64_t narrow_bytes = scaled ? (in.bytes() + 255) / 256 * 256 : 0;
    char* place = static_cast<char*>(staging(narrow_bytes + (wide ? 4 * (in.count + out.count) : 0)));
    if (scaled) {
      const Span copy{place, in.count, in.dtype};
      arithmetic_.scale(*stream_, from, copy, options.prescale);
      from = copy;
    }
    if (wide) {
      const Span copy{place + narrow_bytes, in.count, DType::kI32};
      arithmetic_.convert(*stream_, from, copy);
      from = copy;
      to = {place + narrow_bytes + 4 * in.count, out.count, DType::kI32};
    }
  }
  group("ncclReduceScatter", [&](ncclComm_t comm, ncclResult_t& all) {
    if (in.count == 0) return;
    if (all_equal(counts)) {
      join(all, ncclReduceScatter(from.data, to.data, static_cast<size_t>(out.count), type, nccl_op(op), comm,
                                  queue()));
      return;
    }
    for_blocks(counts, from.dtype, [&](int root, int64_t offset, int64_t bytes) {
      if (bytes == 0) return;
      join(all,
           ncclReduce(at(from.data, offset), to.data, static_cast<size_t>(counts[static_cast<size_t>(root)]),
                      type, nccl_op(op), root, comm, queue()));
    });
  });
  if (wide && out.count > 0) arithmetic_.convert(*stream_, to, out);
  if (options.postscale != 1.0 && out.count > 0) {
    arithmetic_.scale(*stream_, out, out, options.postscale);
  }
  return finish(call, options);
}

}  // namespace rondo::nccl
