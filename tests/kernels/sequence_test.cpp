// Embeddings, layer normalization, products of many matrices, recurrent gates.
#include <gmock/gmock.h>

#include "runtime/base/error.h"
#include "runtime/kernels/mask.h"
#include "runtime/kernels/sequence.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

class SequenceTest : public KernelTest {};

TEST_F(SequenceTest, EmbeddingsAndTheirGradients) {
  const auto kernel = backend->embedding({.indices = plain({3, 4}), .entries = 7, .width = 5});
  Array indices(Shape{3, 4});
  for (int64_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<double>(i * i % 7);
  const Array table = random_array({7, 5}, 1), dy = random_array({3, 4, 5}, 2);
  const auto *in = operand(plain({3, 4}), indices), *rows = operand(plain({7, 5}), table),
             *out = result(kernel->output()), *grad = operand(plain({3, 4, 5}), dy),
             *d_table = result(plain({7, 5}));
  kernel->forward(on(*kernel), in->tensor(), rows->tensor(), out->tensor());
  kernel->backward(on(*kernel), in->tensor(), grad->tensor(), d_table->tensor());
  Array expected({3, 4, 5}), expected_table({7, 5});
  for (int64_t i = 0; i < dy.size(); ++i) {
    const int64_t row = static_cast<int64_t>(indices[i / 5]) * 5 + i % 5;
    expected[i] = table[row];
    expected_table[row] += dy[i];
  }
  EXPECT_EQ(array(out).values, expected.values);
  EXPECT_LT(relative_error(array(d_table), expected_table), 3e-7);
  check_guards();
}

TEST_F(SequenceTest, ANumberOutsideOfTheTableIsNamedOrGivesNan) {
  const auto kernel = backend->embedding({.indices = plain({2}), .entries = 3, .width = 2});
  const auto* table = operand(plain({3, 2}), random_array({3, 2}, 1));
  for (const float bad : {3.0f, -1.0f, 0.5f, std::nanf("")}) {
    const float numbers[2] = {2.0f, bad};
    const auto *in = raw(plain({2}), numbers), *out = result(kernel->output());
    if (on_host()) {
      EXPECT_THROW(kernel->forward(on(*kernel), in->tensor(), table->tensor(), out->tensor()),
                   InvalidArgument);
      continue;
    }
    kernel->forward(on(*kernel), in->tensor(), table->tensor(), out->tensor());
    const std::vector<float> got = out->read<float>();
    EXPECT_FALSE(std::isnan(got[0]));
    EXPECT_TRUE(std::isnan(got[2]) && std::isnan(got[3])) << bad;
  }
  EXPECT_THROW(backend->embedding({.indices = plain({2}), .entries = 0, .width = 2}), InvalidArgument);
  EXPECT_THROW(backend->embedding({.indices = plain({2}), .entries = 1 << 25, .width = 2}), InvalidArgument);
}

// The definition, and its gradients from the definition of batch normalization on one row at a time.
TEST_F(SequenceTest, LayerNormalization) {
  int round = 0;
  for (const Shape& shape : {Shape{3, 5}, Shape{2, 4, 33}, Shape{200, 1}, Shape{1, 300}}) {
    const bool scale = round % 3 != 1, center = round % 3 != 2;
    ++round;
    SCOPED_TRACE(shape.text());
    const auto kernel =
        backend->layer_norm({.input = plain(shape), .epsilon = 1e-3f, .scale = scale, .center = center});
    const int64_t n = shape[shape.rank() - 1], rows = shape.elements() / n;
    const Array x = random_array(shape, 1), dy = random_array(shape, 2), gamma = random_array({n}, 3),
                beta = random_array({n}, 4);
    Array y(shape), dx(shape), d_gamma({n}), d_beta({n});
    for (int64_t r = 0; r < rows; ++r) {
      double mean = 0.0, variance = 0.0, slope = 0.0, product = 0.0;
      for (int64_t c = 0; c < n; ++c) mean += x[r * n + c] / static_cast<double>(n);
      for (int64_t c = 0; c < n; ++c) {
        variance += (x[r * n + c] - mean) * (x[r * n + c] - mean) / static_cast<double>(n);
      }
      const double by = 1.0 / std::sqrt(variance + 1e-3);
      for (int64_t c = 0; c < n; ++c) {
        const double hat = (x[r * n + c] - mean) * by, g = dy[r * n + c] * (scale ? gamma[c] : 1.0);
        y[r * n + c] = hat * (scale ? gamma[c] : 1.0) + (center ? beta[c] : 0.0);
        slope += g / static_cast<double>(n);
        product += g * hat / static_cast<double>(n);
        d_gamma[c] += dy[r * n + c] * hat;
        d_beta[c] += dy[r * n + c];
      }
      for (int64_t c = 0; c < n; ++c) {
        const double hat = (x[r * n + c] - mean) * by, g = dy[r * n + c] * (scale ? gamma[c] : 1.0);
        dx[r * n + c] = by * (g - slope - hat * product);
      }
    }
    const Tensor none;
    const auto *in = operand(plain(shape), x), *out = result(plain(shape)), *grad = operand(plain(shape), dy),
               *got_dx = result(plain(shape)), *got_gamma = result(plain({n})),
               *got_beta = result(plain({n}));
    const Tensor g = scale ? operand(plain({n}), gamma)->tensor() : none;
    const Tensor b = center ? operand(plain({n}), beta)->tensor() : none;
    kernel->forward(on(*kernel), in->tensor(), g, b, out->tensor());
    kernel->backward(on(*kernel), in->tensor(), g, grad->tensor(), got_dx->tensor(),
                     scale ? got_gamma->tensor() : none, center ? got_beta->tensor() : none);
    EXPECT_LT(relative_error(array(out), y), 1e-5);
    EXPECT_LT(relative_error(array(got_dx), dx), 2e-5);
    if (scale) {
      EXPECT_LT(relative_error(array(got_gamma), d_gamma), 1e-5);
    }
    if (center) {
      EXPECT_LT(relative_error(array(got_beta), d_beta), 1e-5);
    }
    check_guards();
    operands.clear();
  }
  EXPECT_THROW(backend->layer_norm({.input = plain({2, 3}), .epsilon = 0.0f}), InvalidArgument);
  EXPECT_THROW(backend->layer_norm({.input = plain({3})}), InvalidArgument);
}

TEST_F(SequenceTest, ProductsOfManyMatrices) {
  for (const int64_t batch : {1, 6}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const MatmulSpec spec{.batch = batch,
                              .rows = 5,
                              .columns = 7,
                              .inner = 9,
                              .transpose_a = ta,
                              .transpose_b = tb,
                              .alpha = batch == 1 ? 1.0f : 0.25f};
        const auto kernel = backend->matmul(spec);
        SCOPED_TRACE(kernel->implementation());
        EXPECT_THAT(kernel->implementation(), ::testing::Not(::testing::HasSubstr("ref")));
        const Shape left = ta ? Shape{batch, 9, 5} : Shape{batch, 5, 9},
                    right = tb ? Shape{batch, 7, 9} : Shape{batch, 9, 7};
        const Array a = random_array(left, 1), b = random_array(right, 2);
        Array expected({batch, 5, 7});
        for (int64_t m = 0; m < batch; ++m) {
          for (int64_t i = 0; i < 5; ++i) {
            for (int64_t j = 0; j < 7; ++j) {
              double sum = 0.0;
              for (int64_t k = 0; k < 9; ++k) {
                sum += a[m * 45 + (ta ? k * 5 + i : i * 9 + k)] * b[m * 63 + (tb ? j * 9 + k : k * 7 + j)];
              }
              expected[m * 35 + i * 7 + j] = sum * static_cast<double>(spec.alpha);
            }
          }
        }
        const auto *x = operand(plain(left), a), *y = operand(plain(right), b),
                   *out = result(plain({batch, 5, 7}));
        kernel->run(on(*kernel), x->tensor(), y->tensor(), out->tensor());
        EXPECT_LT(relative_error(array(out), expected), 2e-6);
        check_guards();
        operands.clear();
      }
    }
  }
  EXPECT_THROW(backend->matmul({.batch = 0, .rows = 1, .columns = 1, .inner = 1}), InvalidArgument);
}

// One time step of a layer in float64: h and c from the pre-activations and the last state.
struct Step {
  double h = 0.0, c = 0.0;
};
double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
double hard_sigmoid(double x) {
  return std::clamp(0.2 * x + 0.5, 0.0, 1.0);
}
template <class Gate>
Step lstm(const Gate& sigmoid, const double* z, double last_cell) {
  const double c = sigmoid(z[1]) * last_cell + sigmoid(z[0]) * std::tanh(z[2]);
  return {sigmoid(z[3]) * std::tanh(c), c};
}
template <class Gate>
Step gru(const Gate& sigmoid, const double* x, const double* y, double last) {
  const double z = sigmoid(x[0] + y[0]), r = sigmoid(x[1] + y[1]);
  return {z * last + (1.0 - z) * std::tanh(x[2] + r * y[2]), 0.0};
}

TEST_F(SequenceTest, RecurrentGates) {
  constexpr int64_t kRows = 3, kUnits = 5;
  for (const auto& [kind, hard] : {std::pair{Recurrence::kLstm, false}, std::pair{Recurrence::kLstm, true},
                                   std::pair{Recurrence::kGru, false}, std::pair{Recurrence::kGru, true}}) {
    const auto gate_function = hard ? &hard_sigmoid : &sigmoid;
    const double spread = hard ? 4.0 : 1.0;  // beyond both ends of the slope
    const bool is_lstm = kind == Recurrence::kLstm;
    const int64_t gates = gate_count(kind);
    const auto kernel = backend->gates({.kind = kind, .rows = kRows, .units = kUnits, .hard = hard});
    const Shape unit{kRows, kUnits}, wide{kRows, gates * kUnits}, four{kRows, 4 * kUnits};
    Array input = random_array(wide, 1);
    for (double& value : input.values) value = static_cast<double>(static_cast<float>(value * spread));
    const Array recurrent = random_array(wide, 2), last = random_array(unit, 3), dh = random_array(unit, 4),
                next = random_array(unit, 5), dc = random_array(unit, 6);
    const auto *x = operand(plain(wide), input), *y = operand(plain(wide), recurrent),
               *before = operand(plain(unit), last), *kept = result(plain(four)), *cell = result(plain(unit)),
               *h = result(plain(unit));
    GateState s{.input = x->as<float>(), .recurrent = y->as<float>(), .kept = kept->as<float>()};
    (is_lstm ? s.last_cell : s.last_output) = before->as<float>();
    s.cell = is_lstm ? cell->as<float>() : nullptr;
    s.output = h->as<float>();
    kernel->forward(on(*kernel), s);
    const auto at = [&](int64_t i, int64_t gate) {
      return i / kUnits * gates * kUnits + gate * kUnits + i % kUnits;
    };
    // sum(h (dh + next)) + sum(c dc), with one pre-activation moved.
    const auto step = [&](int64_t i, int64_t gate, double of_input, double of_state, double of_last) {
      double a[4], b[4];
      for (int64_t k = 0; k < gates; ++k) {
        a[k] = input[at(i, k)] + (k == gate ? of_input : 0.0);
        b[k] = recurrent[at(i, k)] + (k == gate ? of_state : 0.0);
        if (is_lstm) a[k] += b[k];
      }
      return is_lstm ? lstm(gate_function, a, last[i] + of_last)
                     : gru(gate_function, a, b, last[i] + of_last);
    };
    const auto slope = [&](int64_t i, int64_t gate, double p, double q, double l) {
      constexpr double kStep = 1e-6;
      const Step up = step(i, gate, p * kStep, q * kStep, l * kStep),
                 down = step(i, gate, -p * kStep, -q * kStep, -l * kStep);
      const double value = (up.h - down.h) * (dh[i] + next[i]) + (is_lstm ? (up.c - down.c) * dc[i] : 0.0);
      return value / (2.0 * kStep);
    };
    Array expected_h(unit), d_input(wide), d_recurrent(wide), d_last(unit);
    for (int64_t i = 0; i < unit.elements(); ++i) {
      expected_h[i] = step(i, -1, 0.0, 0.0, 0.0).h;
      d_last[i] = slope(i, -1, 0.0, 0.0, 1.0);
      for (int64_t k = 0; k < gates; ++k) {
        d_input[at(i, k)] = slope(i, k, 1.0, 0.0, 0.0);
        d_recurrent[at(i, k)] = slope(i, k, 0.0, 1.0, 0.0);
      }
    }
    EXPECT_LT(relative_error(array(h), expected_h), 1e-6);
    const auto *grad = operand(plain(unit), dh), *sent = operand(plain(unit), next),
               *grad_cell = operand(plain(unit), dc), *got_input = result(plain(wide)),
               *got_recurrent = result(plain(wide)), *got_last = result(plain(unit));
    GateGradient g{.kept = kept->as<float>(),
                   .cell = is_lstm ? cell->as<float>() : nullptr,
                   .grad_output = grad->as<float>(),
                   .grad_next = sent->as<float>(),
                   .grad_input = got_input->as<float>()};
    (is_lstm ? g.last_cell : g.last_output) = before->as<float>();
    (is_lstm ? g.grad_cell : g.grad_last) = (is_lstm ? grad_cell : got_last)->as<float>();
    if (!is_lstm) g.grad_recurrent = got_recurrent->as<float>();
    kernel->backward(on(*kernel), g);
    EXPECT_LT(relative_error(array(got_input), d_input), 1e-5);
    EXPECT_LT(relative_error(array(is_lstm ? grad_cell : got_last), d_last), 1e-5);
    if (!is_lstm) {
      EXPECT_LT(relative_error(array(got_recurrent), d_recurrent), 1e-5);
    }
    check_guards();
    operands.clear();
  }
}

// A row that a mask leaves out passes its state on, and its gradient back; the others are as without a mask.
TEST_F(SequenceTest, MaskedRowsPassTheirStateOn) {
  constexpr int64_t kRows = 3, kUnits = 5, kStride = 4;
  for (const auto kind : {Recurrence::kLstm, Recurrence::kGru}) {
    const bool is_lstm = kind == Recurrence::kLstm;
    const int64_t gates = gate_count(kind);
    const auto kernel = backend->gates({.kind = kind, .rows = kRows, .units = kUnits});
    const Shape unit{kRows, kUnits}, wide{kRows, gates * kUnits}, four{kRows, 4 * kUnits};
    Array counts({kRows, kStride});
    for (const int64_t row : {0, 2}) counts[row * kStride] = 1.0;
    const auto *x = operand(plain(wide), random_array(wide, 1)),
               *y = operand(plain(wide), random_array(wide, 2)),
               *h = operand(plain(unit), random_array(unit, 3)),
               *c = operand(plain(unit), random_array(unit, 4)),
               *dh = operand(plain(unit), random_array(unit, 5)),
               *next = operand(plain(unit), random_array(unit, 6)),
               *mask = operand(plain({kRows, kStride}), counts);
    std::vector<std::vector<double>> out[2];
    for (const bool masked : {false, true}) {
      const auto *kept = result(plain(four)), *cell = result(plain(unit)), *output = result(plain(unit)),
                 *d_input = result(plain(wide)), *d_recurrent = result(plain(wide)),
                 *d_last = result(plain(unit)), *d_cell = operand(plain(unit), random_array(unit, 7));
      GateState s{.input = x->as<float>(),
                  .recurrent = y->as<float>(),
                  .last_output = h->as<float>(),
                  .last_cell = is_lstm ? c->as<float>() : nullptr,
                  .kept = kept->as<float>(),
                  .cell = is_lstm ? cell->as<float>() : nullptr,
                  .output = output->as<float>()};
      GateGradient g{.kept = kept->as<float>(),
                     .last_output = h->as<float>(),
                     .last_cell = s.last_cell,
                     .cell = s.cell,
                     .grad_output = dh->as<float>(),
                     .grad_next = next->as<float>(),
                     .grad_cell = is_lstm ? d_cell->as<float>() : nullptr,
                     .grad_input = d_input->as<float>(),
                     .grad_recurrent = is_lstm ? nullptr : d_recurrent->as<float>(),
                     .grad_last = d_last->as<float>()};
      if (masked) {
        s.mask = g.mask = mask->as<float>();
        s.mask_stride = g.mask_stride = kStride;
      }
      kernel->forward(on(*kernel), s);
      kernel->backward(on(*kernel), g);
      for (const auto* each :
           {output, is_lstm ? cell : output, d_input, is_lstm ? d_input : d_recurrent, d_last, d_cell}) {
        out[masked].push_back(array(each).values);
      }
      check_guards();
    }
    const auto last = array(h).values, last_cell = array(is_lstm ? c : h).values;
    const auto sent = array(next).values, slope = array(dh).values;
    const auto of_cell = random_array(unit, 7);
    for (size_t value = 0; value < out[0].size(); ++value) {
      const size_t width = out[0][value].size() / kRows;
      for (size_t i = 0; i < out[0][value].size(); ++i) {
        double expected = out[0][value][i];
        if (i / width == 1) {
          const double passed[] = {last[i % last.size()],
                                   last_cell[i % last.size()],
                                   0.0,
                                   0.0,
                                   static_cast<double>(static_cast<float>(slope[i % last.size()]) +
                                                       static_cast<float>(sent[i % last.size()])),
                                   static_cast<double>(static_cast<float>(of_cell.values[i % last.size()]))};
          expected = passed[value];
        }
        EXPECT_EQ(out[1][value][i], expected) << value << " " << i;
      }
    }
    operands.clear();
  }
}

TEST_F(SequenceTest, Masks) {
  const MaskSpec spec{.rows = 2, .positions = 3, .features = 4};
  const auto kernel = backend->mask(spec);
  Array x = random_array({2, 3, 4}, 1);
  for (const int64_t position : {1, 2, 5}) {
    for (int64_t f = 0; f < 4; ++f) x[position * 4 + f] = -1.0;
  }
  x[2 * 4 + 3] = 0.0;  // one feature is enough to count
  x[0] = std::nan("");
  const auto *in = operand(plain({2, 3, 4}), x), *mask = result(plain({2, 3})),
             *shares = result(plain({2, 3})), *out = result(plain({2, 3, 4}));
  kernel->find(on(*kernel), in->tensor(), -1.0f, mask->tensor());
  EXPECT_EQ(array(mask).values, (std::vector<double>{1, 0, 1, 1, 1, 0}));
  kernel->shares(on(*kernel), mask->tensor(), shares->tensor());
  EXPECT_EQ(array(shares).values, (std::vector<double>{1.5, 0, 1.5, 1.5, 1.5, 0}));
  kernel->scale(on(*kernel), in->tensor(), shares->tensor(), out->tensor());
  const Array got = array(out);
  for (int64_t i = 1; i < x.size(); ++i) {
    const float factor = i / 4 == 1 || i / 4 == 5 ? 0.0f : 1.5f;
    EXPECT_EQ(got[i], static_cast<double>(static_cast<float>(x[i]) * factor)) << i;
  }
  EXPECT_TRUE(std::isnan(got[0]));
  const auto* none = operand(plain({2, 3}), Array({2, 3}));
  kernel->shares(on(*kernel), none->tensor(), shares->tensor());
  for (const double share : array(shares).values) EXPECT_TRUE(std::isnan(share));
  check_guards();
  EXPECT_THROW(backend->mask({.rows = 2, .positions = 0}), InvalidArgument);
}

TEST_F(SequenceTest, MaskedScores) {
  const Shape shape{2, 3, 4, 5};
  const auto kernel = backend->score_mask({.rows = 2, .heads = 3, .queries = 4, .keys = 5});
  const Array scores = random_array(shape, 1);
  Array queries({2, 4}), keys({2, 5});
  for (int64_t i = 0; i < queries.size(); ++i) queries[i] = i % 3 == 0 ? 0.0 : 1.0;
  for (int64_t i = 0; i < keys.size(); ++i) keys[i] = i % 4 == 1 ? 0.0 : 1.0;
  const auto *in = operand(plain(shape), scores), *q = operand(plain({2, 4}), queries),
             *k = operand(plain({2, 5}), keys), *out = result(plain(shape));
  for (const bool with_queries : {true, false}) {
    for (const bool with_keys : {true, false}) {
      kernel->hide(on(*kernel), in->tensor(), with_queries ? q->tensor() : Tensor{},
                   with_keys ? k->tensor() : Tensor{}, out->tensor());
      const Array got = array(out);
      for (int64_t i = 0; i < scores.size(); ++i) {
        const int64_t row = i / 60, query = i / 5 % 4, key = i % 5;
        const bool counts =
            (!with_queries || queries[row * 4 + query] > 0.0) && (!with_keys || keys[row * 5 + key] > 0.0);
        EXPECT_EQ(got[i], static_cast<double>(static_cast<float>(scores[i]) + (counts ? 0.0f : -1e9f))) << i;
      }
    }
  }
  check_guards();
  EXPECT_THROW(backend->score_mask({.rows = 1, .heads = 1, .queries = 1, .keys = 0}), InvalidArgument);
}

}  // namespace
}  // namespace rondo::test
