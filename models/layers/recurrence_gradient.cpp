#include <functional>

#include "models/layers/linear.h"
#include "models/layers/recurrence_parts.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

// -1: not there.
struct BackwardValues {
  ValueId input = -1;      // (time, rows, gates): gradient of the input's products
  ValueId state = -1;      // of the state's products; an LSTM's are the same
  ValueId candidate = -1;  // of the second products of a GRU with reset before
  ValueId next = -1;       // (rows, units): what a time step sends to the one before
  ValueId cell = -1;       // (rows, units): the same of the cell; LSTM
  ValueId last = -1;       // (rows, units): the part of `next` past the products
  ValueId reset = -1;      // (rows, units): gradient of r h_last
};

struct BackwardTensors {
  const Tensor &input, &state, &candidate, &next, &cell, &last, &reset;
};

const Tensor& tensor_of(PlanBuilder& builder, ValueId value) {
  return value >= 0 ? builder.tensor(value) : kNoTensor;
}

void run_backward(const Execution& on, const Recurrent& r, const Tensor& dy, const RecurrentTensors& v,
                  const BackwardTensors& b, AddKernel* add) {
  if (r.sequences) {
    on.stream.fill_zero(b.next.data, b.next.bytes());
  } else {
    on.stream.copy(b.next.data, dy.data, b.next.bytes());
  }
  if (r.lstm()) on.stream.fill_zero(b.cell.data, b.cell.bytes());
  for (int64_t t = r.time; t-- > 0;) {
    GateGradient g{.kept = v.kept.as<const float>() + t * 4 * r.slice(),
                   .last_output = v.states.as<const float>() + t * r.slice(),
                   .grad_output = r.sequences ? dy.as<const float>() + t * r.slice() : nullptr,
                   .grad_next = b.next.as<const float>(),
                   .grad_cell = b.cell.as<float>(),
                   .grad_input = b.input.as<float>() + t * r.gate_slice(),
                   .grad_last = b.last.as<float>(),
                   .last_dropped = part_of(v.dropped, t * r.slice(), r.step()).as<const float>(),
                   .grad_reset = b.reset.as<float>(),
                   .mask = r.mask_at(v.mask, t),
                   .mask_stride = r.time};
    if (r.lstm()) {
      g.last_cell = v.cells.as<const float>() + t * r.slice();
      g.cell = v.cells.as<const float>() + (t + 1) * r.slice();
    } else {
      g.grad_recurrent = b.state.as<float>() + t * r.gate_slice();
    }
    const Shape products{r.spec.rows, r.columns()};
    if (r.reset_before()) {
      const Tensor candidate = part_of(b.candidate, t * r.gate_slice(), products);
      g.grad_candidate = candidate.as<float>();
      r.gates->backward_candidate(on, g);
      r.state->backward_input(on, candidate, r.recurrent->value, b.reset);
    }
    r.gates->backward(on, g);
    if (t == 0) return;  // the state before is zeros, not trained
    r.state->backward_input(on, part_of(b.state, t * r.gate_slice(), products), r.recurrent->value, b.next);
    if (r.reset_before()) add->run(on, b.next, b.reset, b.next);
    if (r.drop_state != nullptr) r.drop_state->backward(on, b.next, b.next);
    if (r.passes_state()) add->run(on, b.next, b.last, b.next);
  }
}

// The gradient of the weights of `dense`, which read `in` and gave what `slopes` is the gradient of; db may
// be empty.
void append_product_gradient(PlanBuilder& builder, DenseKernel& dense, ValueId in, ValueId slopes,
                             const WeightGradient& target, std::function<Tensor()> bias,
                             ValueId bias_temporary, const std::string& name) {
  const Tensor& x = builder.tensor(in);
  const Tensor& dy = builder.tensor(slopes);
  const Tensor& dw = *target.tensor;
  PlanStep step{.name = name, .kernel = &dense, .reads = {in, slopes}, .writes = {}};
  for (const ValueId temporary : {target.temporary, bias_temporary}) {
    if (temporary >= 0) step.writes.push_back(temporary);
  }
  step.run = [&dense, &x, &dy, &dw, bias = std::move(bias)](const Execution& on) {
    dense.backward_weights(on, part_of(x, 0, dense.input().shape), part_of(dy, 0, dense.output().shape), dw,
                           bias());
  };
  builder.add_step(std::move(step));
}

// The gradients of kernel, recurrent kernel and bias, each one product over all time steps.
void append_weight_gradients(PlanBuilder& builder, const RecurrentPtr& r, const RecurrentValues& v,
                             const BackwardValues& b, const std::string& name) {
  const auto begin = [&](Parameter* parameter) {
    return parameter ? builder.begin_weight_gradient(*parameter) : WeightGradient{&kNoTensor, -1};
  };
  const auto nothing = [] { return Tensor{}; };
  const WeightGradient for_kernel = begin(r->kernel), for_bias = begin(r->bias);
  const Tensor& db = *for_bias.tensor;
  append_product_gradient(
      builder, *r->input, v.rows, b.input, for_kernel, [r, &db] { return r->input_part(db); },
      for_bias.temporary, name + ": kernel gradient");
  builder.end_weight_gradient(*r->kernel, for_kernel);
  const std::string recurrent = name + ": recurrent kernel gradient";
  const WeightGradient for_recurrent = begin(r->recurrent);
  append_product_gradient(
      builder, *r->all_states, v.dropped >= 0 ? v.dropped : v.states, b.state, for_recurrent,
      [r, &db] { return r->state_part(db); }, for_bias.temporary, recurrent);
  builder.end_weight_gradient(*r->recurrent, for_recurrent);
  if (r->reset_before()) {
    const WeightGradient second = begin(r->recurrent);
    append_product_gradient(builder, *r->all_states, v.resets, b.candidate, second, nothing, -1, recurrent);
    builder.end_weight_gradient(*r->recurrent, second);
  }
  if (r->bias) builder.end_weight_gradient(*r->bias, for_bias);
}

BackwardValues add_values(PlanBuilder& builder, const Recurrent& r, const std::string& name) {
  const Shape products{r.time * r.spec.rows, r.columns()};
  const auto add_value = [&](const Shape& shape, const char* what) {
    return builder.add_value({.shape = shape}, name + what);
  };
  BackwardValues b;
  b.input = add_value(products, " gate gradients");
  b.state = r.lstm() ? b.input : add_value(products, " state gradients");
  b.next = add_value(r.step(), " gradient sent back");
  if (r.lstm()) b.cell = add_value(r.step(), " cell gradient");
  if (r.passes_state()) b.last = add_value(r.step(), " gradient passed back");
  if (!r.reset_before()) return b;
  b.candidate = add_value(products, " candidate gradients");
  b.reset = add_value(r.step(), " reset gradient");
  return b;
}

}  // namespace

void append_recurrence_gradient(PlanBuilder& builder, const RecurrentPtr& r, const RecurrentValues& v,
                                const Gradient& gradient, const std::string& name) {
  const BackwardValues b = add_values(builder, *r, name);
  const RecurrentTensors kept(builder, v);
  const Tensor& dy = builder.tensor(gradient.id);
  const BackwardTensors to{builder.tensor(b.input),         builder.tensor(b.state),
                           tensor_of(builder, b.candidate), builder.tensor(b.next),
                           tensor_of(builder, b.cell),      tensor_of(builder, b.last),
                           tensor_of(builder, b.reset)};
  AddKernel* add = r->passes_state() ? &builder.own(builder.backend().add({.shape = r->step()})) : nullptr;
  PlanStep step{
      .name = name + ": gradient",
      .kernel = r->state,
      .reads = {gradient.id},
      .writes = {},
      .run = [r, &dy, kept, to, add](const Execution& on) { run_backward(on, *r, dy, kept, to, add); }};
  for (const ValueId read : {v.states, v.kept, v.cells, v.dropped, v.mask}) {
    if (read >= 0) step.reads.push_back(read);
  }
  for (const ValueId written : {b.input, b.state, b.candidate, b.next, b.cell, b.last, b.reset}) {
    if (written >= 0) step.writes.push_back(written);
  }
  builder.add_step(std::move(step));
  if (r->kernel->trainable) append_weight_gradients(builder, r, v, b, name);
  if (!r->passes_on) return;
  const ValueId result = builder.add_value(r->input->input(), name + " input gradient");
  const Tensor& d_input = to.input;
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

}  // namespace rondo
