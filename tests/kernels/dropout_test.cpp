#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

class DropoutTest : public KernelTest {
 protected:
  // What the layer does to ones, in canonical order.
  Array drop(const DropoutSpec& spec) {
    const auto kernel = backend->dropout(spec);
    Array ones(spec.desc.shape);
    for (double& v : ones.values) v = 1.0;
    const auto *in = operand(kernel->desc(), ones), *out = result(kernel->desc());
    kernel->forward(on(*kernel), in->tensor(), out->tensor());
    const Array kept = array(out);
    EXPECT_LT(padding_mass(out), 1e-3);
    // The gradient takes the same way.
    const auto* grad = result(kernel->desc());
    kernel->backward(on(*kernel), in->tensor(), grad->tensor());
    EXPECT_EQ(array(grad).values, kept.values);
    check_guards();
    operands.clear();
    return kept;
  }
};

// The definition, through the Random123 headers.
TEST_F(DropoutTest, FollowsTheCounterBasedGenerator) {
  state.step = (int64_t{1} << 32) + 5;
  state.first_row = 11;
  for (const auto& shape : {Shape{3, 5}, Shape{2, 64}, Shape{2, 3, 5, 7}, Shape{1, 200}}) {
    const DropoutSpec spec{.desc = plain(shape), .rate = 0.3f, .stream = 2};
    const Array got = drop(spec);
    const int64_t sample = shape.elements() / shape[0];
    for (int64_t i = 0; i < got.size(); ++i) {
      const auto row = static_cast<uint64_t>(state.first_row + i / sample),
                 e = static_cast<uint64_t>(i % sample);
      const auto step = static_cast<uint64_t>(state.step);
      const auto words = random_words({state.seed, RandomPurpose::kDropout, 2}, (step << 32) | row,
                                      (step >> 32 << 32) | (e / 4));
      const bool kept = uniform_float(words[e % 4]) >= 0.3f;
      ASSERT_EQ(got[i] != 0.0, kept) << i;
      if (kept) {
        EXPECT_NEAR(got[i], 1.0 / 0.7, 1e-6);
      }
    }
  }
}

TEST_F(DropoutTest, DoesNotDependOnHowRowsAreSplitOverRanks) {
  const Array whole = drop({.desc = plain({7, 3, 3, 5}), .rate = 0.5f});
  std::vector<double> joined;
  for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 3}, {3, 1}, {4, 3}}) {
    state.first_row = first;
    const Array part = drop({.desc = plain({rows, 3, 3, 5}), .rate = 0.5f});
    joined.insert(joined.end(), part.values.begin(), part.values.end());
  }
  EXPECT_EQ(joined, whole.values);
}

TEST_F(DropoutTest, KeepsTheStatedShare) {
  for (const float rate : {0.0f, 0.1f, 0.25f, 0.5f, 0.9f}) {
    const Array out = drop({.desc = plain({64, 4096}), .rate = rate});
    double kept = 0.0, neighbours = 0.0, mean = 0.0;
    for (int64_t i = 0; i < out.size(); ++i) {
      kept += out[i] != 0.0 ? 1.0 : 0.0;
      mean += out[i] / static_cast<double>(out.size());
      if (i > 0) neighbours += out[i] != 0.0 && out[i - 1] != 0.0 ? 1.0 : 0.0;
    }
    const auto n = static_cast<double>(out.size());
    const double p = 1.0 - static_cast<double>(rate);
    EXPECT_NEAR(kept / n, p, 5.0 * std::sqrt(p * (1.0 - p) / n) + 1e-7);
    EXPECT_NEAR(neighbours / n, p * p, 8.0 * std::sqrt(p * p * (1.0 - p * p) / n) + 1e-5);
    EXPECT_NEAR(mean, 1.0, 0.02);
  }
}

TEST_F(DropoutTest, StepsAndStreamsDiffer) {
  const DropoutSpec spec{.desc = plain({4, 256})};
  const Array first = drop(spec);
  EXPECT_EQ(drop(spec).values, first.values);
  state.step = 1;
  EXPECT_NE(drop(spec).values, first.values);
  state.step = 0;
  EXPECT_NE(drop({.desc = plain({4, 256}), .stream = 1}).values, first.values);
  state.seed = 8;
  EXPECT_NE(drop(spec).values, first.values);
}

TEST_F(DropoutTest, BadSpecsAreRefused) {
  EXPECT_THROW(backend->dropout({.desc = plain({4, 4}), .rate = 1.0f}), InvalidArgument);
  EXPECT_THROW(backend->dropout({.desc = plain({4, 4}), .rate = -0.1f}), InvalidArgument);
  EXPECT_THROW(backend->dropout({.desc = plain({0, 4})}), InvalidArgument);
}

}  // namespace
}  // namespace rondo::test
