// The kernels of loss scaling, and what others do in a step that is skipped.
#include <gmock/gmock.h>

#include <limits>

#include "runtime/base/error.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class LossScaleTest : public KernelTest {
 protected:
  StepState* device_state() { return state_memory.as<StepState>(); }
  StepState read_state() {
    StepState now;
    stream->copy(&now, state_memory.data(), sizeof(now));
    stream->synchronize();
    return now;
  }
  // A LossScale on the device.
  const Guarded* place(const LossScale& scale) {
    return raw({Shape{static_cast<int64_t>(sizeof(LossScale))}, DType::kU8, {}}, &scale);
  }
  static LossScale read(const Guarded* from) { return from->read<LossScale>()[0]; }
};

TEST_F(LossScaleTest, AStepBeginsWithTheScale) {
  const auto kernel = backend->loss_scale({});
  const auto* scale = place({.scale = 1024.0f, .skipped = 3});
  state.inverse_batch = 0.25f;
  state.gradient_scale = 1.0f;
  state.update = 10;
  kernel->begin(on(*kernel), scale->as<LossScale>(), device_state());
  const StepState now = read_state();
  EXPECT_EQ(now.loss_scale, 1024.0f);
  EXPECT_EQ(now.inverse_batch, 256.0f);
  EXPECT_EQ(now.gradient_scale, 1.0f / 1024.0f);
  EXPECT_EQ(now.update, 7);
  EXPECT_EQ(now.skip, 0);
}

TEST_F(LossScaleTest, GrowsAfterGoodStepsAndHalvesOnOverflow) {
  const auto kernel = backend->loss_scale({.initial = 8.0f, .growth_steps = 3});
  const auto* scale = place({.scale = 8.0f});
  const auto decide = [&](double first, double second) {
    const double squares[2] = {first, second};
    const auto* sums = raw({Shape{2}, DType::kF64, {}}, squares);
    kernel->decide(on(*kernel), sums->as<double>(), 2, scale->as<LossScale>(), device_state());
    return read_state().skip != 0;
  };
  const auto expect = [&](float value, int32_t good, int64_t skipped) {
    EXPECT_EQ(read(scale).scale, value);
    EXPECT_EQ(read(scale).good_steps, good);
    EXPECT_EQ(read(scale).skipped, skipped);
  };
  EXPECT_FALSE(decide(1.0, 0.0));
  EXPECT_FALSE(decide(1e76, 1e76));
  expect(8.0f, 2, 0);
  EXPECT_FALSE(decide(0.0, 0.0));
  expect(16.0f, 0, 0);
  EXPECT_FALSE(decide(1.0, 1.0));
  EXPECT_TRUE(decide(1.0, kInfinity));
  expect(8.0f, 0, 1);
  EXPECT_TRUE(decide(std::numeric_limits<double>::quiet_NaN(), 1.0));
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(decide(kInfinity, 1.0));
  expect(1.0f, 0, 8);
  check_guards();
}

TEST_F(LossScaleTest, StopsGrowingWhereFloatsEnd) {
  const auto kernel = backend->loss_scale({.growth_steps = 1});
  const auto* scale = place({.scale = 0x1p127f});
  const auto* sums = number(1.0);
  kernel->decide(on(*kernel), sums->as<double>(), 1, scale->as<LossScale>(), device_state());
  EXPECT_EQ(read(scale).scale, 0x1p127f);
}

TEST_F(LossScaleTest, ASkippedStepUpdatesNothing) {
  const Shape shape{1000};
  for (const UpdateSpec& spec : {UpdateSpec{SgdUpdate{}}, UpdateSpec{SgdUpdate{.momentum = 0.9f}},
                                 UpdateSpec{RmsPropUpdate{}}, UpdateSpec{AdamUpdate{}}}) {
    const auto kernel = backend->update(spec);
    const Array w = random_array(shape, 1), m = random_array(shape, 2), v = random_array(shape, 3);
    Array g(shape);
    for (double& value : g.values) value = kInfinity;
    const auto *weights = operand(plain(shape), w), *first = operand(plain(shape), m),
               *second = operand(plain(shape), v), *gradients = operand(plain(shape), g);
    state.skip = 1;
    const UpdateSpan span{
        weights->as<float>(), gradients->as<float>(), {first->as<float>(), second->as<float>()}, 1000};
    kernel->run(on(*kernel), span);
    EXPECT_EQ(array(weights).values, w.values);
    EXPECT_EQ(array(first).values, m.values);
    EXPECT_EQ(array(second).values, v.values);
    operands.clear();
  }
}

TEST_F(LossScaleTest, ClippingMeasuresGradientsWithoutTheScale) {
  const double squares[2] = {9.0 * 256.0 * 256.0, 16.0 * 256.0 * 256.0};
  const auto* sums = raw({Shape{2}, DType::kF64, {}}, squares);
  const auto kernel = backend->clip(2.5);
  const auto* norm = number();
  state.loss_scale = 256.0f;
  state.gradient_scale = 1.0f / 256.0f;
  kernel->run(on(*kernel), sums->as<double>(), 2, device_state(), norm->as<double>());
  EXPECT_EQ(value(norm), 5.0);
  EXPECT_EQ(read_state().gradient_scale, 1.0f / 256.0f);
  EXPECT_EQ(read_state().clip_scale, 0.5f);
}

TEST_F(LossScaleTest, BadSettingsAreRefused) {
  for (const LossScaling& bad :
       {LossScaling{.initial = 0.5f}, LossScaling{.initial = HUGE_VALF}, LossScaling{.growth_steps = 0}}) {
    EXPECT_THROW(backend->loss_scale(bad), InvalidArgument);
  }
}

}  // namespace
}  // namespace rondo::test
