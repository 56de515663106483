#include "models/layers/recurrence.h"

#include "models/graph/permute_step.h"
#include "models/layers/linear.h"
#include "models/layers/recurrence_parts.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

// Training drops states; the number for the draws is taken in any case, so that both plans count alike.
DropoutKernel* state_dropout(PlanBuilder& builder, const RecurrentStep& step, int64_t rows) {
  if (step.recurrent_dropout == 0.0f) return nullptr;
  const uint32_t stream = builder.next_dropout_stream();
  if (!builder.training()) return nullptr;
  const TensorDesc desc{.shape = {rows, step.units}};
  return &builder.own(
      builder.backend().dropout({.desc = desc, .rate = step.recurrent_dropout, .stream = stream}));
}

RecurrentPtr prepare(PlanBuilder& builder, const RecurrentStep& step, const Shape& in, bool input_gradient) {
  auto r = std::make_shared<Recurrent>();
  r->spec = {.kind = step.kind, .rows = in[0], .units = step.units, .hard = step.hard_gates};
  r->time = in[1];
  r->features = in[2];
  r->sequences = step.return_sequences;
  r->backwards = step.go_backwards;
  r->passes_on = input_gradient;
  r->masked = step.mask >= 0;
  KernelBackend& backend = builder.backend();
  const RecurrentWeights& w = step.weights;
  DenseSpec input;
  input.input.shape = {in[0] * in[1], in[2]};
  input.units = r->columns();
  input.use_bias = w.bias != nullptr;
  input.mode = builder.mode();
  input.input_gradient = input_gradient;
  input.tf32 = builder.tf32();
  input.kernel_layout = builder.imposed_layout(*w.kernel);
  r->input = &builder.own(backend.dense(input));
  r->kernel = &builder.parameter(*w.kernel, r->input->kernel());
  if (w.bias) r->bias = &builder.parameter(*w.bias, {.shape = w.bias->shape});
  // A time step's part of the states begins wherever the one before it ends, and so does the second bias.
  const bool aligned = in[0] * step.units % 16 == 0 && (!r->state_bias() || step.units % 16 == 0);
  DenseSpec state;
  state.input.shape = {in[0], step.units};
  state.units = r->columns();
  state.use_bias = r->state_bias();
  state.mode = builder.mode();
  state.alignment = aligned ? 64 : 4;
  state.tf32 = builder.tf32();
  state.kernel_layout = builder.imposed_layout(*w.recurrent);
  r->state = &builder.own(backend.dense(state));
  r->recurrent = &builder.parameter(*w.recurrent, r->state->kernel());
  if (r->reset_before())
    builder.parameter(*w.recurrent, r->state->kernel());  // a second product, a second use
  if (builder.training()) {
    state.input.shape = {in[0] * in[1], step.units};
    state.kernel_layout = r->state->kernel().layout;
    r->all_states = &builder.own(backend.dense(state));
  }
  r->gates = &builder.own(backend.gates(r->spec));
  r->drop_state = state_dropout(builder, step, in[0]);
  for (const DenseKernel* dense : {r->input, r->state, r->all_states}) {
    RONDO_CHECK(dense == nullptr ||
                (dense->input().layout.canonical() && dense->output().layout.canonical()));
  }
  RONDO_CHECK(r->drop_state == nullptr || r->drop_state->desc().layout.canonical());
  return r;
}

// In training: dropout of (time rows, features) that leaves out the same elements of a row at all time steps.
ValueId append_input_dropout(PlanBuilder& builder, const RecurrentStep& step, ValueId in, int64_t time) {
  if (step.dropout == 0.0f) return in;
  const uint32_t stream = builder.next_dropout_stream();
  if (!builder.training()) return in;
  const Shape all = builder.desc(in).shape;
  const Shape slice{all[0] / time, all[1]};
  auto& kernel = builder.own(
      builder.backend().dropout({.desc = {.shape = slice}, .rate = step.dropout, .stream = stream}));
  RONDO_CHECK(kernel.desc().layout.canonical());
  const ValueId out = builder.add_value({.shape = all}, step.name + " dropped inputs");
  const auto append = [&builder, &kernel, slice, time](const std::string& name, ValueId from, ValueId to,
                                                       auto function) {
    const Tensor& x = builder.tensor(from);
    const Tensor& y = builder.tensor(to);
    builder.add_step({.name = name,
                      .kernel = &kernel,
                      .reads = {from},
                      .writes = {to},
                      .run = [&kernel, &x, &y, slice, time, function](const Execution& on) {
                        for (int64_t t = 0; t < time; ++t) {
                          const int64_t at = t * slice.elements();
                          (kernel.*function)(on, part_of(x, at, slice), part_of(y, at, slice));
                        }
                      }});
  };
  append(step.name + ": dropout", in, out, &DropoutKernel::forward);
  builder.on_backward(out, [&builder, append, in, all, name = step.name](Gradient gradient) {
    const ValueId result = builder.gradient_value({.shape = all}, gradient, name + " dropped input gradient");
    append(name + ": dropout gradient", gradient.id, result, &DropoutKernel::backward);
    builder.add_gradient(in, {result, true});
  });
  return out;
}

void append_input(PlanBuilder& builder, const RecurrentPtr& r, const RecurrentValues& v,
                  const std::string& name) {
  const Tensor& from = builder.tensor(v.rows);
  const Tensor& to = builder.tensor(v.input);
  builder.add_step({.name = name + ": input",
                    .kernel = r->input,
                    .reads = {v.rows},
                    .writes = {v.input},
                    .run = [r, &from, &to](const Execution& on) {
                      const Tensor bias = r->bias ? r->input_part(r->bias->value) : Tensor{};
                      r->input->forward(on, from, r->kernel->value, bias, to);
                    }});
}

void run_forward(const Execution& on, const Recurrent& r, const RecurrentTensors& v) {
  on.stream.fill_zero(v.states.data, r.slice() * kFloatBytes);
  if (r.lstm()) on.stream.fill_zero(v.cells.data, r.slice() * kFloatBytes);
  const Tensor bias = r.bias ? r.state_part(r.bias->value) : Tensor{};
  for (int64_t t = 0; t < r.time; ++t) {
    const Tensor last = part_of(v.states, t * r.slice(), r.step());
    const Tensor dropped = part_of(v.dropped, t * r.slice(), r.step());
    if (r.drop_state != nullptr) r.drop_state->forward(on, last, dropped);
    r.state->forward(on, r.drop_state != nullptr ? dropped : last, r.recurrent->value, bias, v.product);
    GateState s{.input = v.input.as<const float>() + t * r.gate_slice(),
                .recurrent = v.product.as<const float>(),
                .last_output = last.as<const float>(),
                .last_dropped = dropped.as<const float>(),
                .kept = v.kept.as<float>() + t * 4 * r.slice(),
                .output = v.states.as<float>() + (t + 1) * r.slice(),
                .mask = r.mask_at(v.mask, t),
                .mask_stride = r.time};
    if (r.lstm()) {
      s.last_cell = v.cells.as<const float>() + t * r.slice();
      s.cell = v.cells.as<float>() + (t + 1) * r.slice();
    }
    if (r.reset_before()) {
      const Tensor reset = part_of(v.resets, t * r.slice(), r.step());
      s.reset = reset.as<float>();
      r.gates->reset(on, s);
      r.state->forward(on, reset, r.recurrent->value, {}, v.product);
    }
    r.gates->forward(on, s);
  }
}

// The result: all states behind the zeros, or the last one.
ValueId append_result(PlanBuilder& builder, const RecurrentPtr& r, const RecurrentValues& v,
                      const std::string& name) {
  const GateSpec& spec = r->spec;
  const Shape shape = r->sequences ? Shape{r->time, spec.rows, spec.units} : r->step();
  const ValueId out = builder.add_value({.shape = shape}, name);
  const Tensor& states = builder.tensor(v.states);
  const Tensor& to = builder.tensor(out);
  const int64_t offset = (r->sequences ? 1 : r->time) * r->slice();
  builder.add_step({.name = name + ": result",
                    .reads = {v.states},
                    .writes = {out},
                    .run = [&states, &to, offset](const Execution& on) {
                      on.stream.copy(to.data, states.as<float>() + offset, to.bytes());
                    }});
  return out;
}

RecurrentValues add_values(PlanBuilder& builder, const Recurrent& r, const RecurrentStep& step) {
  const int64_t rows = r.spec.rows;
  const auto add_value = [&](const Shape& extents, const char* what) {
    return builder.add_value({.shape = extents}, step.name + what);
  };
  RecurrentValues v;
  v.input = add_value({rows * r.time, r.columns()}, " input products");
  v.product = add_value({rows, r.columns()}, " state product");
  v.states = add_value({r.time + 1, rows, step.units}, " states");
  if (r.lstm()) v.cells = add_value({r.time + 1, rows, step.units}, " cells");
  v.kept = add_value({r.time, rows, 4 * step.units}, " gates");
  if (r.drop_state != nullptr) v.dropped = add_value({r.time, rows, step.units}, " dropped states");
  if (r.reset_before()) v.resets = add_value({r.time, rows, step.units}, " reset states");
  v.mask = step.mask;
  return v;
}

}  // namespace

RecurrentTensors::RecurrentTensors(PlanBuilder& builder, const RecurrentValues& values)
    : input(builder.tensor(values.input)),
      states(builder.tensor(values.states)),
      cells(values.cells >= 0 ? builder.tensor(values.cells) : kNoTensor),
      kept(builder.tensor(values.kept)),
      product(builder.tensor(values.product)),
      dropped(values.dropped >= 0 ? builder.tensor(values.dropped) : kNoTensor),
      resets(values.resets >= 0 ? builder.tensor(values.resets) : kNoTensor),
      mask(values.mask >= 0 ? builder.tensor(values.mask) : kNoTensor) {}

ValueId append_recurrence(PlanBuilder& builder, const RecurrentStep& step, ValueId in) {
  builder.tensor(in);
  const Shape shape = builder.desc(in).shape;
  const int64_t time = shape[1];
  const ValueId by_time =
      append_permute(builder, in, {1, 0, 2}, step.name + " by time", step.go_backwards ? 0 : -1);
  const ValueId rows =
      append_input_dropout(builder, step, builder.reshape(by_time, {shape[0] * time, shape[2]}), time);
  const RecurrentPtr r = prepare(builder, step, shape, builder.needs_gradient(in));
  RecurrentValues v = add_values(builder, *r, step);
  v.rows = rows;
  append_input(builder, r, v, step.name);
  const RecurrentTensors tensors(builder, v);
  PlanStep forward{.name = step.name,
                   .kernel = r->state,
                   .reads = {v.input},
                   .writes = {v.product, v.states, v.kept},
                   .run = [r, tensors](const Execution& on) { run_forward(on, *r, tensors); }};
  if (v.mask >= 0) forward.reads.push_back(v.mask);
  for (const ValueId written : {v.cells, v.dropped, v.resets}) {
    if (written >= 0) forward.writes.push_back(written);
  }
  builder.add_step(std::move(forward));
  const ValueId out = append_result(builder, r, v, step.name);
  for (const ValueId value : {v.rows, v.states, v.kept, v.cells, v.dropped, v.resets, v.mask}) {
    if (value >= 0) builder.keep(value);
  }
  builder.on_backward(out, [&builder, r, v, name = step.name](Gradient gradient) {
    append_recurrence_gradient(builder, r, v, gradient, name);
  });
  return step.return_sequences ? append_permute(builder, out, {1, 0, 2}, step.name + " by sample") : out;
}

}  // namespace rondo
