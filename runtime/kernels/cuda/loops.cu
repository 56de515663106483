#include "runtime/kernels/cuda/loops.h"

#include "runtime/base/random.h"
#include "runtime/kernels/cuda/element_math.h"
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/philox.h"
#include "runtime/kernels/loss_scale.h"
#include "runtime/tensor/step_state.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

struct Linear {
  RONDO_HOST_DEVICE float forward(float x) const { return x; }
  RONDO_HOST_DEVICE float backward(float dy, float) const { return dy; }
};

// Calls `go` with the functor of an activation that kernels fuse.
template <class Go>
void with_fused(Activation f, const Go& go) {
  switch (f) {
    case Activation::kLinear:
      return go(Linear());
    case Activation::kRelu:
      return go(Relu());
    case Activation::kSigmoid:
      return go(Sigmoid());
    case Activation::kTanh:
      return go(Tanh());
    default:
      cannot_fuse(f);
  }
}
// Calls `go` with the functor of any activation.
template <class Go>
void with_any(const ActivationFunction& f, const Go& go) {
  return fusible(f.kind) ? with_fused(f.kind, go) : with_activation<StandardMath>(f, go);
}

template <class F, class T = float>
struct Forward {
  F f;
  const T* x;
  T* y;
  RONDO_DEVICE void operator()(int64_t i) const { y[i] = rounded<T>(f.forward(as_float(x[i]))); }
};

template <class F, class T = float>
struct Backward {
  F f;
  const T *dy, *y;
  T* dx;
  RONDO_DEVICE void operator()(int64_t i) const {
    dx[i] = rounded<T>(f.backward(as_float(dy[i]), as_float(y[i])));
  }
};

template <class F, class T>
struct BiasForward {
  F f;
  const T* bias;
  T* y;
  int64_t channels;
  bool narrow;  // indices fit in 32 bits, whose division is fast
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t c = narrow
                          ? static_cast<int64_t>(static_cast<uint32_t>(i) % static_cast<uint32_t>(channels))
                          : i % channels;
    y[i] = rounded<T>(f.forward(as_float(y[i]) + as_float(bias[c])));
  }
};

template <class T>
struct Sum {
  const T *a, *b;
  T* out;
  RONDO_DEVICE void operator()(int64_t i) const { out[i] = rounded<T>(as_float(a[i]) + as_float(b[i])); }
};

template <class From, class To>
struct Convert {
  const From* from;
  To* to;
  RONDO_DEVICE void operator()(int64_t i) const { to[i] = rounded<To>(as_float(from[i])); }
};

// Task: a piece of one array. An array begins with the task behind the last of the one before.
template <class T>
struct RoundArrays {
  RoundedArray arrays[kRoundedArrays];
  int64_t ends[kRoundedArrays];  // of the tasks of each
  RONDO_DEVICE void operator()(int64_t task, const Team& team) const {
    int at = 0;
    while (task >= ends[at]) ++at;
    const RoundedArray& array = arrays[at];
    const int64_t begin = (task - (at > 0 ? ends[at - 1] : 0)) * kRoundedPiece;
    const int64_t end = begin + kRoundedPiece < array.count ? begin + kRoundedPiece : array.count;
    T* to = static_cast<T*>(array.to);
    for (int64_t i = begin + team.rank(); i < end; i += team.size()) to[i] = rounded<T>(array.from[i]);
  }

  static constexpr int64_t kRoundedPiece = 4096;
};

template <class T>
struct CopyRuns {
  const T* from;
  T* to;
  Runs runs;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t run = i / runs.length, at = i - run * runs.length;
    to[run * runs.to_stride + at] = from[run * runs.from_stride + at];
  }
};

template <class From, class To>
struct Transpose {
  const From* from;
  To* to;
  int64_t rows, columns;
  RONDO_DEVICE void operator()(int64_t i) const {
    const int64_t column = i / rows, row = i - column * rows;
    to[i] = rounded<To>(as_float(from[row * columns + column]));
  }
};

// Draws four elements of a row at a time: one call of the generator.
template <class T>
struct Dropout {
  DropoutArguments a;
  const StepState* state;
  const T* x;
  uint8_t* mask;
  T* y;

  struct Prepared {
    uint32_t key[2], step_low, step_high, first_row;
  };
  RONDO_DEVICE Prepared prepare() const {
    const PhiloxWords key =
        philox_key_words(state->seed, static_cast<uint32_t>(RandomPurpose::kDropout), a.stream);
    const auto step = static_cast<uint64_t>(state->step);
    return {{key.w[0], key.w[1]},
            static_cast<uint32_t>(step),
            static_cast<uint32_t>(step >> 32),
            static_cast<uint32_t>(state->first_row)};
  }
  RONDO_DEVICE void operator()(int64_t i, const Prepared& p) const {
    const int64_t groups = (a.elements + 3) / 4;
    const int64_t row = i / groups, group = i - row * groups;
    const PhiloxWords drawn = philox(
        {{static_cast<uint32_t>(group), p.step_high, p.first_row + static_cast<uint32_t>(row), p.step_low}},
        p.key[0], p.key[1]);
    const int64_t begin = row * a.elements + group * 4;
    const int64_t left = a.elements - group * 4;
    for (int k = 0; k < 4 && k < left; ++k) {
      const bool kept = (drawn.w[k] >> 8) >= a.threshold;
      mask[begin + k] = kept ? 1 : 0;
      y[begin + k] = rounded<T>(kept ? as_float(x[begin + k]) * a.scale : 0.0f);
    }
  }
};

template <class T>
struct ApplyMask {
  const T* x;
  const uint8_t* mask;
  float scale;
  T* y;
  RONDO_DEVICE void operator()(int64_t i) const {
    y[i] = rounded<T>(mask[i] != 0 ? as_float(x[i]) * scale : 0.0f);
  }
};

struct ScaleStep {
  const LossScale* scale;
  StepState* state;
  RONDO_DEVICE void operator()(int64_t) const { begin_scaled_step(*scale, *state); }
};

struct DecideStep {
  LossScaling scaling;
  const double* square_sums;
  int64_t count;
  LossScale* scale;
  StepState* state;
  RONDO_DEVICE void operator()(int64_t) const {
    double sum = 0.0;
    for (int64_t i = 0; i < count; ++i) sum += square_sums[i];
    decide_scaled_step(scaling, sum, *scale, *state);
  }
};

struct FillTail {
  const double* sums;
  int64_t count;
  const StepState* state;
  float* tail;
  RONDO_DEVICE void operator()(int64_t i) const {
    tail[i] = i < count ? static_cast<float>(sums[i]) : state->vote;
  }
};

}  // namespace

template <class T>
void activation_forward(cudaStream_t stream, const ActivationFunction& f, const T* x, T* y, int64_t count) {
  with_any(f, [&](auto functor) {
    launch_elements("activation", stream, count,
                    {reads(x, count * kBytesOf<T>), writes(y, count * kBytesOf<T>)},
                    Forward<decltype(functor), T>{functor, x, y});
  });
}

template <class T>
void activation_backward(cudaStream_t stream, const ActivationFunction& f, const T* dy, const T* y, T* dx,
                         int64_t count) {
  with_any(f, [&](auto functor) {
    launch_elements(
        "activation gradient", stream, count,
        {reads(dy, count * kBytesOf<T>), reads(y, count * kBytesOf<T>), writes(dx, count * kBytesOf<T>)},
        Backward<decltype(functor), T>{functor, dy, y, dx});
  });
}

template <class T>
void bias_activation(cudaStream_t stream, Activation f, const T* bias, T* y, int64_t rows, int64_t channels) {
  const int64_t count = rows * channels;
  if (bias == nullptr) {
    if (f != Activation::kLinear) activation_forward(stream, f, y, y, count);
    return;
  }
  with_fused(f, [&](auto functor) {
    launch_elements(
        "bias and activation", stream, count,
        {reads(bias, channels * kBytesOf<T>), reads(y, count * kBytesOf<T>), writes(y, count * kBytesOf<T>)},
        BiasForward<decltype(functor), T>{functor, bias, y, channels, count < int64_t{1} << 32});
  });
}

template <class T>
void add(cudaStream_t stream, const T* a, const T* b, T* out, int64_t count) {
  const int64_t bytes = count * kBytesOf<T>;
  launch_elements("add", stream, count, {reads(a, bytes), reads(b, bytes), writes(out, bytes)},
                  Sum<T>{a, b, out});
}

template <class From, class To>
void convert(cudaStream_t stream, const From* from, To* to, int64_t count) {
  launch_elements("convert", stream, count,
                  {reads(from, count * kBytesOf<From>), writes(to, count * kBytesOf<To>)},
                  Convert<From, To>{from, to});
}

template <class T>
void round_arrays(cudaStream_t stream, std::span<const RoundedArray> arrays) {
  RoundArrays<T> round{};
  std::array<Access, 2 * kRoundedArrays> a{};  // empty ones count for nothing
  int64_t tasks = 0;
  for (size_t i = 0; i < kRoundedArrays; ++i) {
    const RoundedArray array = i < arrays.size() ? arrays[i] : RoundedArray{};
    tasks += (array.count + round.kRoundedPiece - 1) / round.kRoundedPiece;
    round.arrays[i] = array;
    round.ends[i] = tasks;
    a[2 * i] = reads(array.from, array.count * kFloat);
    a[2 * i + 1] = writes(array.to, array.count * kBytesOf<T>);
  }
  launch_teams("round weights", stream, tasks, 256,
               {a[0],  a[1],  a[2],  a[3],  a[4],  a[5],  a[6],  a[7],  a[8],  a[9],  a[10],
                a[11], a[12], a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21],
                a[22], a[23], a[24], a[25], a[26], a[27], a[28], a[29], a[30], a[31]},
               round);
}

template <class T>
void copy_runs(cudaStream_t stream, const T* from, T* to, const Runs& runs) {
  if (runs.runs == 0 || runs.length == 0) return;
  const int64_t read = (runs.runs - 1) * runs.from_stride + runs.length;
  const int64_t written = (runs.runs - 1) * runs.to_stride + runs.length;
  launch_elements("copy", stream, runs.runs * runs.length,
                  {reads(from, read * kBytesOf<T>), writes(to, written * kBytesOf<T>)},
                  CopyRuns<T>{from, to, runs});
}

template <class From, class To>
void transpose(cudaStream_t stream, const From* from, To* to, int64_t rows, int64_t columns) {
  const int64_t count = rows * columns;
  launch_elements("transpose", stream, count,
                  {reads(from, count * kBytesOf<From>), writes(to, count * kBytesOf<To>)},
                  Transpose<From, To>{from, to, rows, columns});
}

template <class T>
void dropout_forward(cudaStream_t stream, const DropoutArguments& a, const StepState* state, const T* x,
                     uint8_t* mask, T* y) {
  const int64_t count = a.rows * a.elements;
  launch_elements("dropout", stream, a.rows * ((a.elements + 3) / 4),
                  {reads(state, sizeof(StepState)), reads(x, count * kBytesOf<T>), writes(mask, count),
                   writes(y, count * kBytesOf<T>)},
                  Dropout<T>{a, state, x, mask, y});
}

template <class T>
void apply_mask(cudaStream_t stream, const T* x, const uint8_t* mask, float scale, T* y, int64_t count) {
  launch_elements("dropout gradient", stream, count,
                  {reads(x, count * kBytesOf<T>), reads(mask, count), writes(y, count * kBytesOf<T>)},
                  ApplyMask<T>{x, mask, scale, y});
}

void scale_step(cudaStream_t stream, const LossScale* scale, StepState* state) {
  launch_elements(
      "loss scale", stream, 1,
      {reads(scale, sizeof(LossScale)), reads(state, sizeof(StepState)), writes(state, sizeof(StepState))},
      ScaleStep{scale, state});
}

void decide_step(cudaStream_t stream, const LossScaling& scaling, const double* square_sums, int64_t count,
                 LossScale* scale, StepState* state) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(double));
  launch_elements("finite gradients", stream, 1,
                  {reads(square_sums, bytes), reads(scale, sizeof(LossScale)),
                   writes(scale, sizeof(LossScale)), writes(state, sizeof(StepState))},
                  DecideStep{scaling, square_sums, count, scale, state});
}

void fill_tail(cudaStream_t stream, const double* sums, int64_t count, const StepState* state, float* tail) {
  launch_elements("tail", stream, count + 1,
                  {reads(sums, count * static_cast<int64_t>(sizeof(double))), reads(state, sizeof(StepState)),
                   writes(tail, (count + 1) * kFloat)},
                  FillTail{sums, count, state, tail});
}

#define INSTANTIATE(T)                                                                                       \
  template void activation_forward(cudaStream_t, const ActivationFunction&, const T*, T*, int64_t);          \
  template void activation_backward(cudaStream_t, const ActivationFunction&, const T*, const T*, T*,         \
                                    int64_t);                                                                \
  template void bias_activation(cudaStream_t, Activation, const T*, T*, int64_t, int64_t);                   \
  template void add(cudaStream_t, const T*, const T*, T*, int64_t);                                          \
  template void convert(cudaStream_t, const float*, T*, int64_t);                                            \
  template void copy_runs(cudaStream_t, const T*, T*, const Runs&);                                          \
  template void transpose(cudaStream_t, const T*, T*, int64_t, int64_t);                                     \
  template void dropout_forward(cudaStream_t, const DropoutArguments&, const StepState*, const T*, uint8_t*, \
                                T*);                                                                         \
  template void apply_mask(cudaStream_t, const T*, const uint8_t*, float, T*, int64_t);
RONDO_FOR_ELEMENTS(INSTANTIATE)
#undef INSTANTIATE

#define INSTANTIATE(T)                                                       \
  template void convert(cudaStream_t, const T*, float*, int64_t);            \
  template void transpose(cudaStream_t, const T*, float*, int64_t, int64_t); \
  template void round_arrays<T>(cudaStream_t, std::span<const RoundedArray>);
INSTANTIATE(__half)
INSTANTIATE(__nv_bfloat16)
#undef INSTANTIATE

}  // namespace rondo::cuda
