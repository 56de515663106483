// Optimizer updates: by element, or by pieces of tensors whose norms are known on the device.
#include "runtime/kernels/cuda/launch.h"
#include "runtime/kernels/cuda/loops.h"
#include "runtime/kernels/cuda/update_loops.h"
#include "runtime/tensor/step_state.h"

namespace rondo::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kDouble = sizeof(double);
constexpr float kInfinity = HUGE_VALF;

template <class Rule>
struct Common {
  Rule rule;
  UpdateCall a;

  struct Prepared {
    UpdateRates rates;
    GradientInput input;
  };
  RONDO_DEVICE Prepared prepare() const {
    return {rule.prepare(rate_input(*a.state)), {a.state->gradient_scale, a.limit, a.state->clip_scale}};
  }
  RONDO_DEVICE Prepared prepare(int64_t tensor) const {
    Prepared p = prepare();
    if (a.tensors.plain[tensor] != 0) p.rates.decay = 0.0f;
    p.rates.trust = a.tensors.trust[tensor];
    p.input.factor *= a.tensors.clip[tensor];
    return p;
  }
  RONDO_DEVICE void load(int64_t i, float* slots) const {
    for (int s = 0; s < Rule::kSlots; ++s) slots[s] = a.span.slots[s][i];
  }
  RONDO_DEVICE void store(int64_t i, const float* slots) const {
    for (int s = 0; s < Rule::kSlots; ++s) a.span.slots[s][i] = slots[s];
  }
  RONDO_DEVICE void update(int64_t i, const Prepared& p) const {
    float slots[3] = {};
    load(i, slots);
    float w = a.span.weights[i];
    rule(p.rates, p.input.enter(a.span.gradients[i]), w, slots);
    a.span.weights[i] = w;
    store(i, slots);
  }
};

template <class Rule>
struct Elements {
  Common<Rule> c;
  RONDO_DEVICE typename Common<Rule>::Prepared prepare() const { return c.prepare(); }
  RONDO_DEVICE void operator()(int64_t i, const typename Common<Rule>::Prepared& p) const {
    if (c.a.state->skip == 0) c.update(i, p);
  }
};

template <class Rule>
struct Chunks {
  Common<Rule> c;
  RONDO_DEVICE void operator()(int64_t task, const Team& team) const {
    if (c.a.state->skip != 0) return;
    const UpdateChunk chunk = c.a.tensors.chunks[task];
    const auto p = c.prepare(chunk.tensor);
    for (int64_t i = team.rank(); i < chunk.count; i += team.size()) c.update(chunk.begin + i, p);
  }
};

// Squares of weights and directions; changes slots as the rule says.
template <class Rule>
struct Directions {
  Common<Rule> c;
  RONDO_DEVICE void operator()(int64_t task, const Team& team) const {
    if (c.a.state->skip != 0) return;
    const UpdateChunk chunk = c.a.tensors.chunks[task];
    const auto p = c.prepare(chunk.tensor);
    double weights = 0.0, directions = 0.0;
    for (int64_t k = team.rank(); k < chunk.count; k += team.size()) {
      const int64_t i = chunk.begin + k;
      float slots[3] = {};
      c.load(i, slots);
      const float w = c.a.span.weights[i];
      const auto d =
          static_cast<double>(c.rule.direction(p.rates, p.input.enter(c.a.span.gradients[i]), w, slots));
      c.store(i, slots);
      weights += static_cast<double>(w) * static_cast<double>(w);
      directions += d * d;
    }
    weights = team.sum(weights);
    directions = team.sum(directions);
    if (team.rank() != 0) return;
    c.a.tensors.squares[2 * task] = weights;
    c.a.tensors.squares[2 * task + 1] = directions;
  }
};

// Squares of gradients as they come in.
struct Gradients {
  UpdateCall a;
  RONDO_DEVICE void operator()(int64_t task, const Team& team) const {
    const UpdateChunk chunk = a.tensors.chunks[task];
    const GradientInput input{a.state->gradient_scale, a.limit};
    double sum = 0.0;
    for (int64_t i = team.rank(); i < chunk.count; i += team.size()) {
      const auto g = static_cast<double>(input.cut_finite(a.span.gradients[chunk.begin + i]));
      sum += g * g;
    }
    sum = team.sum(sum);
    if (team.rank() == 0) a.tensors.squares[2 * task + 1] = sum;
  }
};

RONDO_DEVICE inline double norm_of(const TensorTables& tables, int64_t tensor, int which) {
  double sum = 0.0;
  for (int64_t c = tables.first_chunk[tensor]; c < tables.first_chunk[tensor + 1]; ++c) {
    sum += tables.squares[2 * c + which];
  }
  return std::sqrt(sum);
}

struct ClipFactors {
  UpdateCall a;
  RONDO_DEVICE void operator()(int64_t tensor) const {
    const double norm = norm_of(a.tensors, tensor, 1), limit = static_cast<double>(a.clip_norm);
    a.tensors.clip[tensor] = static_cast<float>(limit / (norm < limit ? limit : norm));  // keeps NaN
  }
};

template <class Rule>
struct TrustFactors {
  Common<Rule> c;
  RONDO_DEVICE void operator()(int64_t tensor) const {
    if (c.a.tensors.plain[tensor] != 0) return;
    c.a.tensors.trust[tensor] = static_cast<float>(c.rule.factor(
        c.prepare(tensor).rates, norm_of(c.a.tensors, tensor, 0), norm_of(c.a.tensors, tensor, 1)));
  }
};

template <class Rule>
void by_tensor(cudaStream_t stream, const Common<Rule>& c) {
  const UpdateSpan& span = c.a.span;
  const TensorTables& t = c.a.tensors;
  const int64_t bytes = span.count * kFloat;
  const auto slot = [&](int s) { return span.slots[s] != nullptr ? bytes : 0; };
  const Access state = reads(c.a.state, sizeof(StepState)), gradients = reads(span.gradients, bytes),
               weights = reads(span.weights, bytes),
               chunks = reads(t.chunks, t.chunk_count * static_cast<int64_t>(sizeof(UpdateChunk))),
               first = reads(t.first_chunk, (t.tensor_count + 1) * static_cast<int64_t>(sizeof(int64_t))),
               plain = reads(t.plain, t.tensor_count), trust = reads(t.trust, t.tensor_count * kFloat),
               clip = reads(t.clip, t.tensor_count * kFloat),
               squares = reads(t.squares, 2 * t.chunk_count * kDouble),
               to_squares = writes(t.squares, 2 * t.chunk_count * kDouble);
  if (c.a.clip_norm > 0.0f) {
    launch_teams("gradient norms", stream, t.chunk_count, 256, {state, gradients, chunks, to_squares},
                 Gradients{c.a});
    launch_elements("clip by norm", stream, t.tensor_count,
                    {first, squares, writes(t.clip, t.tensor_count * kFloat)}, ClipFactors{c.a});
  }
  if constexpr (Rule::kAdapts) {
    launch_teams("update directions", stream, t.chunk_count, 256,
                 {state, gradients, weights, chunks, plain, trust, clip, reads(span.slots[0], slot(0)),
                  reads(span.slots[1], slot(1)), writes(span.slots[0], slot(0)),
                  writes(span.slots[1], slot(1)), to_squares},
                 Directions<Rule>{c});
    launch_elements("trust ratios", stream, t.tensor_count,
                    {state, first, plain, trust, clip, squares, writes(t.trust, t.tensor_count * kFloat)},
                    TrustFactors<Rule>{c});
  }
  launch_teams(
      "update by tensor", stream, t.chunk_count, 256,
      {state, gradients, weights, chunks, plain, trust, clip, reads(span.slots[0], slot(0)),
       reads(span.slots[1], slot(1)), reads(span.slots[2], slot(2)), writes(span.weights, bytes),
       writes(span.slots[0], slot(0)), writes(span.slots[1], slot(1)), writes(span.slots[2], slot(2))},
      Chunks<Rule>{c});
}

template <class Rule>
void by_element(cudaStream_t stream, const Common<Rule>& c) {
  const UpdateSpan& span = c.a.span;
  const int64_t bytes = span.count * kFloat;
  const auto slot = [&](int s) { return span.slots[s] != nullptr ? bytes : 0; };
  launch_elements("update", stream, span.count,
                  {reads(c.a.state, sizeof(StepState)), reads(span.gradients, bytes),
                   reads(span.weights, bytes), reads(span.slots[0], slot(0)), reads(span.slots[1], slot(1)),
                   reads(span.slots[2], slot(2)), writes(span.weights, bytes), writes(span.slots[0], slot(0)),
                   writes(span.slots[1], slot(1)), writes(span.slots[2], slot(2))},
                  Elements<Rule>{c});
}

struct SquareParts {
  const StepState* state;
  float limit;
  const float* values;
  int64_t count, part;
  double* parts;
  RONDO_DEVICE void operator()(int64_t task, const Team& team) const {
    const int64_t begin = task * part, end = begin + part < count ? begin + part : count;
    const GradientInput input{1.0f, limit < kInfinity ? limit / state->gradient_scale : limit};
    double sum = 0.0;
    for (int64_t i = begin + team.rank(); i < end; i += team.size()) {
      const auto g = static_cast<double>(input.cut_finite(values[i]));
      sum += g * g;
    }
    sum = team.sum(sum);
    if (team.rank() == 0) parts[task] = sum;
  }
};

struct ClipNorm {
  double limit;
  const double* square_sums;
  int64_t count;
  StepState* state;
  double* norm;
  RONDO_DEVICE void operator()(int64_t) const {
    double sum = 0.0;
    for (int64_t i = 0; i < count; ++i) sum += square_sums[i];
    const double length = std::sqrt(sum) / static_cast<double>(state->loss_scale);
    const double most = length < limit ? limit : length;  // a NaN stays one
    state->clip_scale *= static_cast<float>(limit / most);
    *norm = length;
  }
};

}  // namespace

void update(cudaStream_t stream, const UpdateSpec& spec, const UpdateCall& call) {
  std::visit(
      [&](const auto& settings) {
        with_rule(settings, [&]<class Rule>(const Rule& rule) {
          const Common<Rule> c{rule, call};
          if (call.tensors.chunks != nullptr) {
            by_tensor(stream, c);
          } else {
            by_element(stream, c);
          }
        });
      },
      spec.rule);
}

void square_sum(cudaStream_t stream, const StepState* state, float limit, const float* values, int64_t count,
                double* parts, double* out) {
  const int64_t even = (count + kSquareParts - 1) / kSquareParts;
  const int64_t part = even < 1024 ? 1024 : even;
  const int64_t tasks = (count + part - 1) / part;
  launch_teams("square sums", stream, tasks, 256,
               {reads(state, limit < kInfinity ? static_cast<int64_t>(sizeof(StepState)) : 0),
                reads(values, count * kFloat), writes(parts, tasks * kDouble)},
               SquareParts{state, limit, values, count, part, parts});
  sum_parts(stream, parts, tasks, 1.0, out);
}

void clip_norm(cudaStream_t stream, double limit, const double* square_sums, int64_t count, StepState* state,
               double* norm) {
  launch_elements("clip norm", stream, 1,
                  {reads(square_sums, count * kDouble), reads(state, sizeof(StepState)),
                   writes(state, sizeof(StepState)), writes(norm, kDouble)},
                  ClipNorm{limit, square_sums, count, state, norm});
}

}  // namespace rondo::cuda
