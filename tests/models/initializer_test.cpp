#include "models/graph/initializer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/base/error.h"

namespace rondo {
namespace {

std::vector<float> filled(const Initializer& initializer, const Shape& shape, uint32_t stream = 0) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  initializer.fill(shape, {.seed = 1, .purpose = RandomPurpose::kInitializer, .stream = stream}, values);
  return values;
}

struct Moments {
  double mean = 0.0;
  double deviation = 0.0;
  double largest = 0.0;
};

Moments moments(const std::vector<float>& values) {
  Moments m;
  for (const float v : values) m.mean += static_cast<double>(v);
  m.mean /= static_cast<double>(values.size());
  for (const float v : values) {
    m.deviation += (static_cast<double>(v) - m.mean) * (static_cast<double>(v) - m.mean);
    m.largest = std::max(m.largest, std::abs(static_cast<double>(v)));
  }
  m.deviation = std::sqrt(m.deviation / static_cast<double>(values.size()));
  return m;
}

TEST(Initializer, Constants) {
  EXPECT_THAT(filled("zeros", {5}), testing::Each(0.0f));
  EXPECT_THAT(filled("ones", {5}), testing::Each(1.0f));
  EXPECT_THAT(filled(Initializer::constant(0.25), {5}), testing::Each(0.25f));
}

TEST(Initializer, UniformStaysWithinKerasLimits) {
  struct Case {
    const char* name;
    Shape shape;
    double limit;
  };
  // Fans of a convolution are the receptive field times the channels.
  const Case cases[] = {{"glorot_uniform", {300, 100}, std::sqrt(6.0 / 400.0)},
                        {"glorot_uniform", {3, 3, 32, 64}, std::sqrt(6.0 / (9.0 * 96.0))},
                        {"he_uniform", {300, 100}, std::sqrt(6.0 / 300.0)},
                        {"lecun_uniform", {3, 3, 32, 64}, std::sqrt(3.0 / 288.0)},
                        {"random_uniform", {300, 100}, 0.05}};
  for (const Case& c : cases) {
    const Moments m = moments(filled(c.name, c.shape));
    EXPECT_LE(m.largest, c.limit * 1.000001) << c.name;
    EXPECT_GE(m.largest, c.limit * 0.99) << c.name;
    EXPECT_NEAR(m.mean, 0.0, 0.03 * c.limit) << c.name;
    EXPECT_NEAR(m.deviation, c.limit / std::sqrt(3.0), 0.03 * c.limit) << c.name;
  }
}

TEST(Initializer, NormalIsTruncatedAtTwoDeviations) {
  struct Case {
    const char* name;
    double deviation;
  };
  for (const Case& c :
       {Case{"glorot_normal", std::sqrt(2.0 / 400.0)}, Case{"he_normal", std::sqrt(2.0 / 300.0)},
        Case{"lecun_normal", std::sqrt(1.0 / 300.0)}}) {
    const Moments m = moments(filled(c.name, {300, 100}));
    EXPECT_LE(m.largest, 2.0 * c.deviation / 0.87962566 * 1.0001) << c.name;
    EXPECT_NEAR(m.deviation, c.deviation, 0.02 * c.deviation) << c.name;
  }
  const Moments m = moments(filled(Initializer::normal(1.0, 0.5), {300, 100}));
  EXPECT_NEAR(m.mean, 1.0, 0.02);
  EXPECT_NEAR(m.deviation, 0.5, 0.02);
  EXPECT_GT(m.largest, 2.0);
}

TEST(Initializer, OfKerasWithSettings) {
  const Moments cut = moments(filled(Initializer::truncated_normal(1.0, 0.5), {300, 100}));
  EXPECT_NEAR(cut.mean, 1.0, 0.01);
  EXPECT_NEAR(cut.deviation, 0.5 * 0.87962566, 0.005);
  EXPECT_LE(cut.largest, 2.0);
  EXPECT_NEAR(moments(filled("truncated_normal", {300, 100})).deviation, 0.05 * 0.87962566, 0.0005);
  EXPECT_EQ(filled(Initializer::identity(2.0), {2, 3}), (std::vector<float>{2, 0, 0, 0, 2, 0}));
  EXPECT_EQ(filled("identity", {2, 2}), (std::vector<float>{1, 0, 0, 1}));
  EXPECT_THROW(filled("identity", {4}), InvalidArgument);
  const std::vector<float> plain = filled("orthogonal", {6, 4}),
                           wide = filled(Initializer::orthogonal(3.0), {6, 4});
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(wide[i], 3.0f * plain[i]);
  struct Case {
    const char *mode, *distribution;
    double variance;
  };
  for (const Case& c :
       {Case{"fan_in", "uniform", 3.0 / 300.0}, Case{"fan_out", "truncated_normal", 3.0 / 100.0},
        Case{"fan_avg", "untruncated_normal", 3.0 / 200.0}}) {
    const Moments m = moments(filled(Initializer::variance_scaling(3.0, c.mode, c.distribution), {300, 100}));
    EXPECT_NEAR(m.deviation, std::sqrt(c.variance), 0.02 * std::sqrt(c.variance)) << c.mode;
  }
  EXPECT_EQ(filled(Initializer::variance_scaling(2.0, "fan_in", "truncated_normal"), {30, 10}),
            filled("he_normal", {30, 10}));
  EXPECT_THROW(Initializer::variance_scaling(1.0, "fan", "uniform").check("here"), InvalidArgument);
  EXPECT_THROW(Initializer::variance_scaling(0.0, "fan_in", "uniform").check("here"), InvalidArgument);
}

TEST(Initializer, IsAFunctionOfSeedAndStream) {
  EXPECT_EQ(filled("glorot_uniform", {7, 5}), filled("glorot_uniform", {7, 5}));
  EXPECT_NE(filled("glorot_uniform", {7, 5}), filled("glorot_uniform", {7, 5}, 1));
}

TEST(Initializer, UnknownNameListsTheNames) {
  EXPECT_THAT([] { Initializer("glorot").check("Dense layer \"a\", weight \"kernel\""); },
              testing::ThrowsMessage<InvalidArgument>(
                  testing::AllOf(testing::HasSubstr("Dense layer \"a\", weight \"kernel\""),
                                 testing::HasSubstr("\"glorot\""), testing::HasSubstr("glorot_uniform"))));
}

}  // namespace
}  // namespace rondo
