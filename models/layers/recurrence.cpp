#include "models/layers/recurrence.h"

#include <memory>

#include "models/graph/layer.h"
#include "models/graph/permute_step.h"
#include "models/layers/linear.h"
#include "runtime/base/error.h"
#include "runtime/kernels/dense.h"
#include "runtime/kernels/elementwise.h"

namespace rondo {
namespace {

constexpr int64_t kFloat = sizeof(float);

// A part of a tensor, whose memory is known when the plan runs.
Tensor part_of(const Tensor& whole, int64_t offset, const Shape& shape) {
  if (!whole) return {};
  return {{.shape = shape}, whole.as<float>() + offset};
}

// Everything that the steps of one call share. Time is the outer axis inside: slices of a step are
// contiguous.
struct Recurrent {
  GateSpec spec;
  int64_t time = 0, features = 0;
  bool sequences = false;
  bool passes_on = false;             // somebody needs the gradient of the input
  DenseKernel* input = nullptr;       // (time rows, features) to the gates
  DenseKernel* state = nullptr;       // (rows, units) to the gates, one time step
  DenseKernel* all_states = nullptr;  // the same for all time steps: the gradients of its weights
  GateKernel* gates = nullptr;
  Parameter *kernel = nullptr, *recurrent = nullptr, *bias = nullptr;

  int64_t columns() const { return gate_count(spec.kind) * spec.units; }
  int64_t slice() const { return spec.rows * spec.units; }  // of states
  int64_t gate_slice() const { return spec.rows * columns(); }
  bool lstm() const { return spec.kind == Recurrence::kLstm; }
  bool state_bias() const { return bias != nullptr && !lstm(); }
  // A bias or its gradient: of the input, and of the state.
  Tensor input_part(const Tensor& whole) const { return part_of(whole, 0, {columns()}); }
  Tensor state_part(const Tensor& whole) const {
    return state_bias() ? part_of(whole, columns(), {columns()}) : Tensor{};
  }
};
using RecurrentPtr = std::shared_ptr<const Recurrent>;

RecurrentPtr prepare(PlanBuilder& builder, const RecurrentStep& step, const Shape& in, bool input_gradient) {
  auto r = std::make_shared<Recurrent>();
  r->spec = {.kind = step.kind, .rows = in[0], .units = step.units};
  r->time = in[1];
  r->features = in[2];
  r->sequences = step.return_sequences;
  r->passes_on = input_gradient;
  KernelBackend& backend = builder.backend();
  const RecurrentWeights& w = step.weights;
  const bool lstm = step.kind == Recurrence::kLstm;
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
  // A time step's part of the states begins wherever the one before it ends, and so does the second bias.
  const bool aligned = in[0] * step.units % 16 == 0 && (lstm || step.units % 16 == 0);
  DenseSpec state;
  state.input.shape = {in[0], step.units};
  state.units = r->columns();
  state.use_bias = w.bias != nullptr && !lstm;
  state.mode = builder.mode();
  state.alignment = aligned ? 64 : 4;
  state.tf32 = builder.tf32();
  state.kernel_layout = builder.imposed_layout(*w.recurrent);
  r->state = &builder.own(backend.dense(state));
  r->recurrent = &builder.parameter(*w.recurrent, r->state->kernel());
  if (builder.training()) {
    state.input.shape = {in[0] * in[1], step.units};
    state.kernel_layout = r->state->kernel().layout;
    r->all_states = &builder.own(backend.dense(state));
  }
  if (w.bias) r->bias = &builder.parameter(*w.bias, {.shape = w.bias->shape});
  r->gates = &builder.own(backend.gates(r->spec));
  for (const DenseKernel* dense : {r->input, r->state, r->all_states}) {
    RONDO_CHECK(dense == nullptr ||
                (dense->input().layout.canonical() && dense->output().layout.canonical()));
  }
  return r;
}

// What a call keeps: states and cells begin with the zeros in front of the first time step.
struct Values {
  ValueId rows = -1;     // (time rows, features)
  ValueId input = -1;    // (time rows, gates): the input's products
  ValueId states = -1;   // (time + 1, rows, units)
  ValueId cells = -1;    // the same; LSTM
  ValueId kept = -1;     // (time, rows, 4 units)
  ValueId product = -1;  // (rows, gates): the state's, of one time step
};

void append_input(PlanBuilder& builder, const RecurrentPtr& r, const Values& v, const std::string& name) {
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

void run_forward(const Execution& on, const Recurrent& r, const Tensor& input, const Tensor& product,
                 const Tensor& states, const Tensor& cells, const Tensor& kept) {
  on.stream.fill_zero(states.data, r.slice() * kFloat);
  if (r.lstm()) on.stream.fill_zero(cells.data, r.slice() * kFloat);
  const Tensor bias = r.bias ? r.state_part(r.bias->value) : Tensor{};
  for (int64_t t = 0; t < r.time; ++t) {
    const Tensor last = part_of(states, t * r.slice(), {r.spec.rows, r.spec.units});
    r.state->forward(on, last, r.recurrent->value, bias, product);
    GateState s{.input = input.as<const float>() + t * r.gate_slice(),
                .recurrent = product.as<const float>(),
                .last_output = last.as<const float>(),
                .kept = kept.as<float>() + t * 4 * r.slice(),
                .output = states.as<float>() + (t + 1) * r.slice()};
    if (r.lstm()) {
      s.last_cell = cells.as<const float>() + t * r.slice();
      s.cell = cells.as<float>() + (t + 1) * r.slice();
    }
    r.gates->forward(on, s);
  }
}

// The result: all states behind the zeros, or the last one.
ValueId append_result(PlanBuilder& builder, const RecurrentPtr& r, const Values& v, const std::string& name) {
  const GateSpec& spec = r->spec;
  const Shape shape = r->sequences ? Shape{r->time, spec.rows, spec.units} : Shape{spec.rows, spec.units};
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

struct BackwardValues {
  ValueId input = -1;  // (time, rows, gates): gradient of the input's products
  ValueId state = -1;  // of the state's products; an LSTM's are the same
  ValueId next = -1;   // (rows, units): what a time step sends to the one before
  ValueId cell = -1;   // (rows, units): the same of the cell; a GRU's: the part past the product
};

void run_backward(const Execution& on, const Recurrent& r, const Tensor& dy, const Tensor& states,
                  const Tensor& cells, const Tensor& kept, const Tensor& d_input, const Tensor& d_state,
                  const Tensor& next, const Tensor& cell, AddKernel* add) {
  const Shape step{r.spec.rows, r.spec.units};
  if (r.sequences) {
    on.stream.fill_zero(next.data, next.bytes());
  } else {
    on.stream.copy(next.data, dy.data, next.bytes());
  }
  if (r.lstm()) on.stream.fill_zero(cell.data, cell.bytes());
  for (int64_t t = r.time; t-- > 0;) {
    GateGradient g{.kept = kept.as<const float>() + t * 4 * r.slice(),
                   .last_output = states.as<const float>() + t * r.slice(),
                   .grad_output = r.sequences ? dy.as<const float>() + t * r.slice() : nullptr,
                   .grad_next = next.as<const float>(),
                   .grad_input = d_input.as<float>() + t * r.gate_slice()};
    if (r.lstm()) {
      g.last_cell = cells.as<const float>() + t * r.slice();
      g.cell = cells.as<const float>() + (t + 1) * r.slice();
      g.grad_cell = cell.as<float>();
    } else {
      g.grad_recurrent = d_state.as<float>() + t * r.gate_slice();
      g.grad_last = cell.as<float>();
    }
    r.gates->backward(on, g);
    if (t == 0) return;  // the state before is zeros, not trained
    const Tensor slope = part_of(d_state, t * r.gate_slice(), {r.spec.rows, r.columns()});
    r.state->backward_input(on, slope, r.recurrent->value, next);
    if (add != nullptr) add->run(on, next, cell, next);
  }
}

// The gradients of kernel, recurrent kernel and bias, each one product over all time steps.
void append_weight_gradients(PlanBuilder& builder, const RecurrentPtr& r, const Values& v,
                             const BackwardValues& b, const std::string& name) {
  const auto begin = [&](Parameter* parameter) {
    return parameter ? builder.begin_weight_gradient(*parameter) : WeightGradient{&kNoTensor, -1};
  };
  const WeightGradient for_kernel = begin(r->kernel), for_recurrent = begin(r->recurrent),
                       for_bias = begin(r->bias);
  const Tensor& rows = builder.tensor(v.rows);
  const Tensor& states = builder.tensor(v.states);
  const Tensor& d_input = builder.tensor(b.input);
  const Tensor& d_state = builder.tensor(b.state);
  const Tensor& dw = *for_kernel.tensor;
  const Tensor& du = *for_recurrent.tensor;
  const Tensor& db = *for_bias.tensor;
  PlanStep input{.name = name + ": kernel gradient",
                 .kernel = r->input,
                 .reads = {v.rows, b.input},
                 .writes = {},
                 .run = [r, &rows, &d_input, &dw, &db](const Execution& on) {
                   const Tensor slope = part_of(d_input, 0, {r->time * r->spec.rows, r->columns()});
                   r->input->backward_weights(on, rows, slope, dw, r->input_part(db));
                 }};
  PlanStep state{.name = name + ": recurrent kernel gradient",
                 .kernel = r->all_states,
                 .reads = {v.states, b.state},
                 .writes = {},
                 .run = [r, &states, &d_state, &du, &db](const Execution& on) {
                   const int64_t all = r->time * r->spec.rows;
                   r->all_states->backward_weights(on, part_of(states, 0, {all, r->spec.units}),
                                                   part_of(d_state, 0, {all, r->columns()}), du,
                                                   r->state_part(db));
                 }};
  for (const ValueId temporary : {for_kernel.temporary, for_bias.temporary}) {
    if (temporary >= 0) input.writes.push_back(temporary);
  }
  for (const ValueId temporary : {for_recurrent.temporary, for_bias.temporary}) {
    if (temporary >= 0) state.writes.push_back(temporary);
  }
  builder.add_step(std::move(input));
  builder.end_weight_gradient(*r->kernel, for_kernel);
  builder.add_step(std::move(state));
  builder.end_weight_gradient(*r->recurrent, for_recurrent);
  if (r->bias) builder.end_weight_gradient(*r->bias, for_bias);
}

void append_backward(PlanBuilder& builder, const RecurrentPtr& r, const Values& v, const Gradient& gradient,
                     const std::string& name) {
  const GateSpec& spec = r->spec;
  const auto add_value = [&](const Shape& shape, const char* what) {
    return builder.add_value({.shape = shape}, name + what);
  };
  BackwardValues b;
  b.input = add_value({r->time * spec.rows, r->columns()}, " gate gradients");
  b.state = r->lstm() ? b.input : add_value({r->time * spec.rows, r->columns()}, " state gradients");
  b.next = add_value({spec.rows, spec.units}, " gradient sent back");
  b.cell = add_value({spec.rows, spec.units}, " cell gradient");
  const Tensor& dy = builder.tensor(gradient.id);
  const Tensor& states = builder.tensor(v.states);
  const Tensor& cells = r->lstm() ? builder.tensor(v.cells) : kNoTensor;
  const Tensor& kept = builder.tensor(v.kept);
  const Tensor& d_input = builder.tensor(b.input);
  const Tensor& d_state = builder.tensor(b.state);
  const Tensor& next = builder.tensor(b.next);
  const Tensor& cell = builder.tensor(b.cell);
  AddKernel* add =
      r->lstm() ? nullptr : &builder.own(builder.backend().add({.shape = {spec.rows, spec.units}}));
  PlanStep step{
      .name = name + ": gradient",
      .kernel = r->state,
      .reads = {gradient.id, v.states, v.kept},
      .writes = {b.input, b.next, b.cell},
      .run = [r, &dy, &states, &cells, &kept, &d_input, &d_state, &next, &cell, add](const Execution& on) {
        run_backward(on, *r, dy, states, cells, kept, d_input, d_state, next, cell, add);
      }};
  if (r->lstm()) step.reads.push_back(v.cells);
  if (!r->lstm()) step.writes.push_back(b.state);
  builder.add_step(std::move(step));
  if (r->kernel->trainable) append_weight_gradients(builder, r, v, b, name);
  if (!r->passes_on) return;
  const ValueId result = builder.add_value(r->input->input(), name + " input gradient");
  const Tensor& dx = builder.tensor(result);
  builder.add_step({.name = name + ": input gradient",
                    .kernel = r->input,
                    .reads = {b.input},
                    .writes = {result},
                    .run = [r, &d_input, &dx](const Execution& on) {
                      r->input->backward_input(on, d_input, r->kernel->value, dx);
                    }});
  builder.add_gradient(v.rows, {result, true});
}

}  // namespace

ValueId append_recurrence(PlanBuilder& builder, const RecurrentStep& step, ValueId in) {
  builder.tensor(in);
  const Shape shape = builder.desc(in).shape;
  const int64_t time = shape[1];
  const ValueId by_time = append_permute(builder, in, {1, 0, 2}, step.name + " by time");
  Values v;
  v.rows = builder.reshape(by_time, {shape[0] * time, shape[2]});
  const RecurrentPtr r = prepare(builder, step, shape, builder.needs_gradient(in));
  const auto add_value = [&](const Shape& extents, const char* what) {
    return builder.add_value({.shape = extents}, step.name + what);
  };
  v.input = add_value({shape[0] * time, r->columns()}, " input products");
  v.product = add_value({shape[0], r->columns()}, " state product");
  v.states = add_value({time + 1, shape[0], step.units}, " states");
  if (r->lstm()) v.cells = add_value({time + 1, shape[0], step.units}, " cells");
  v.kept = add_value({time, shape[0], 4 * step.units}, " gates");
  append_input(builder, r, v, step.name);
  const Tensor& input = builder.tensor(v.input);
  const Tensor& product = builder.tensor(v.product);
  const Tensor& states = builder.tensor(v.states);
  const Tensor& cells = r->lstm() ? builder.tensor(v.cells) : kNoTensor;
  const Tensor& kept = builder.tensor(v.kept);
  PlanStep forward{.name = step.name,
                   .kernel = r->state,
                   .reads = {v.input},
                   .writes = {v.product, v.states, v.kept},
                   .run = [r, &input, &product, &states, &cells, &kept](const Execution& on) {
                     run_forward(on, *r, input, product, states, cells, kept);
                   }};
  if (r->lstm()) forward.writes.push_back(v.cells);
  builder.add_step(std::move(forward));
  const ValueId out = append_result(builder, r, v, step.name);
  for (const ValueId value : {v.rows, v.states, v.kept}) builder.keep(value);
  if (r->lstm()) builder.keep(v.cells);
  builder.on_backward(out, [&builder, r, v, name = step.name](Gradient gradient) {
    append_backward(builder, r, v, gradient, name);
  });
  return step.return_sequences ? append_permute(builder, out, {1, 0, 2}, step.name + " by sample") : out;
}

}  // namespace rondo
