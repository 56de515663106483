#include "runtime/data/source.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/data/array_source.h"
#include "runtime/data/synthetic.h"
#include "runtime/data/weighted.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Sample {
  std::vector<float> input;
  int32_t label = -1;
};

Sample read_class(const Source& source, int64_t index) {
  Sample sample{std::vector<float>(static_cast<size_t>(source.input_elements())), -1};
  source.read(index, sample.input, std::as_writable_bytes(std::span(&sample.label, 1)));
  return sample;
}

std::shared_ptr<const Source> six_numbers() {
  return std::make_shared<ArraySource>(ArrayData{.name = "six",
                                                 .input_shape = {1},
                                                 .input = std::vector<float>{0, 1, 2, 3, 4, 5},
                                                 .labels = std::vector<int32_t>{0, 1, 2, 0, 1, 2},
                                                 .classes = 3});
}

TEST(ArraySource, ReadsFloatsAndVectorLabels) {
  const std::vector<float> input{1, 2, 3, 4, 5, 6};
  const std::vector<float> labels{0.5f, 0.25f, -1.0f, 2.0f};
  const ArraySource source(
      {.input_shape = {3}, .input = std::span(input), .label_shape = {2}, .labels = std::span(labels)});
  EXPECT_EQ(source.size(), 2);
  EXPECT_EQ(source.label_dtype(), DType::kF32);
  EXPECT_EQ(source.label_bytes(), 8);
  EXPECT_EQ(source.classes(), 0);
  std::array<float, 3> x{};
  std::array<float, 2> y{};
  source.read(1, x, std::as_writable_bytes(std::span(y)));
  EXPECT_THAT(x, ElementsAre(4, 5, 6));
  EXPECT_THAT(y, ElementsAre(-1.0f, 2.0f));
}

TEST(ArraySource, ScalesBytes) {
  const ArraySource source({.input_shape = {2, 1},
                            .input = std::vector<uint8_t>{0, 255, 51, 1},
                            .input_divisor = 255.0f,
                            .labels = std::vector<int32_t>{3, 9},
                            .classes = 10});
  const Sample sample = read_class(source, 1);
  EXPECT_THAT(sample.input, ElementsAre(51.0f / 255.0f, 1.0f / 255.0f));
  EXPECT_EQ(sample.label, 9);
  EXPECT_THAT(read_class(source, 0).input, ElementsAre(0.0f, 1.0f));
}

TEST(ArraySource, KeepsItsOwnerAlive) {
  auto owner = std::make_shared<std::vector<float>>(4, 2.0f);
  const std::weak_ptr<const void> watch = owner;
  auto source = std::make_unique<ArraySource>(ArrayData{.input_shape = {2},
                                                        .input = std::span<const float>(*owner),
                                                        .labels = std::vector<int32_t>{0, 1},
                                                        .owner = owner});
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_THAT(read_class(*source, 1).input, ElementsAre(2, 2));
  source.reset();
  EXPECT_TRUE(watch.expired());
}

TEST(ArraySource, DigestSeesEveryPart) {
  const auto make = [](float x, int32_t y, float divisor) {
    return ArraySource({.input_shape = {1},
                        .input = std::vector<float>{1, x},
                        .input_divisor = divisor,
                        .labels = std::vector<int32_t>{0, y}})
        .digest();
  };
  const uint64_t digest = make(2, 1, 1);
  EXPECT_EQ(digest, make(2, 1, 1));
  EXPECT_NE(digest, make(3, 1, 1));
  EXPECT_NE(digest, make(2, 0, 1));
  EXPECT_NE(digest, make(2, 1, 2));
}

TEST(ArraySource, RefusesArraysThatDoNotFit) {
  const auto make = [](int64_t inputs, int64_t labels, Shape shape, int64_t classes = 0) {
    return [=] {
      std::vector<int32_t> numbers(static_cast<size_t>(labels));
      std::iota(numbers.begin(), numbers.end(), 0);
      ArraySource({.name = "mine",
                   .input_shape = shape,
                   .input = std::vector<float>(static_cast<size_t>(inputs)),
                   .labels = numbers,
                   .classes = classes});
    };
  };
  EXPECT_NO_THROW(make(6, 2, {3})());
  EXPECT_THAT(make(7, 2, {3}),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("mine: 7 elements"), HasSubstr("(3,)"))));
  EXPECT_THAT(make(6, 3, {3}), ThrowsMessage<InvalidArgument>(HasSubstr("2 samples have 3 labels")));
  EXPECT_THAT(make(0, 0, {3}), ThrowsMessage<InvalidArgument>(HasSubstr("empty")));
  EXPECT_THAT(make(6, 2, {3, 0}), ThrowsMessage<InvalidArgument>(HasSubstr("no elements")));
  EXPECT_THAT(make(3, 3, {1}, 2), ThrowsMessage<InvalidArgument>(HasSubstr("label 2 of sample 2")));
  EXPECT_THAT(make(3, 3, {1}, -2), ThrowsMessage<InvalidArgument>(HasSubstr("-2 classes")));
}

TEST(SubsetSource, TakesARangeOrAList) {
  const SubsetSource range(six_numbers(), 2, 3, "range");
  EXPECT_EQ(range.size(), 3);
  EXPECT_THAT(read_class(range, 0).input, ElementsAre(2));
  EXPECT_EQ(read_class(range, 2).label, 1);
  const SubsetSource list(six_numbers(), {5, 0, 5}, "list");
  EXPECT_EQ(list.size(), 3);
  EXPECT_THAT(read_class(list, 2).input, ElementsAre(5));
  EXPECT_EQ(list.classes(), 3);
  EXPECT_NE(range.digest(), list.digest());
  EXPECT_NE(range.digest(), SubsetSource(six_numbers(), 3, 3, "range").digest());

  EXPECT_THAT([] { SubsetSource(six_numbers(), 4, 3, "x"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("it has 6")));
  EXPECT_THAT([] { SubsetSource(six_numbers(), {6}, "x"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("sample 6 of six")));
}

TEST(SplitValidation, HoldsOutTheLastSamples) {
  const auto parts = split_validation(six_numbers(), 0.4);  // int(6 * 0.6) = 3
  EXPECT_EQ(parts.train->size(), 3);
  EXPECT_EQ(parts.validation->size(), 3);
  EXPECT_THAT(read_class(*parts.train, 2).input, ElementsAre(2));
  EXPECT_THAT(read_class(*parts.validation, 0).input, ElementsAre(3));
  EXPECT_THAT([] { split_validation(six_numbers(), 1.0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("between 0 and 1")));
  EXPECT_THAT([] { split_validation(six_numbers(), 0.0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("between 0 and 1")));
  EXPECT_THAT([] { split_validation(six_numbers(), 0.9); },
              ThrowsMessage<InvalidArgument>(HasSubstr("leaves 0 of 6")));
}

TEST(SyntheticSource, IsAFunctionOfOptionsAndIndex) {
  const SyntheticOptions options{.size = 20, .input_shape = {9, 9, 3}, .classes = 4, .seed = 5};
  const SyntheticSource a(options);
  const SyntheticSource b(options);
  EXPECT_EQ(a.digest(), b.digest());
  for (int64_t i = 19; i >= 0; --i) {
    const Sample sample = read_class(a, i);
    EXPECT_EQ(sample.input, read_class(b, i).input);
    EXPECT_EQ(sample.label, read_class(b, i).label);
    EXPECT_THAT(sample.label, AllOf(testing::Ge(0), testing::Lt(4)));
    EXPECT_THAT(sample.input, testing::Each(AllOf(testing::Ge(0.0f), testing::Lt(1.0f))));
  }
  EXPECT_NE(read_class(a, 0).input, read_class(a, 1).input);
  SyntheticOptions other = options;
  other.seed = 6;
  EXPECT_NE(a.digest(), SyntheticSource(other).digest());
  EXPECT_NE(read_class(a, 0).input, read_class(SyntheticSource(other), 0).input);
}

TEST(SyntheticSource, InputsLargerThanItsTablesAreFilled) {
  const SyntheticSource source({.size = 2, .input_shape = {224, 224, 3}, .classes = 1000});
  const Sample sample = read_class(source, 1);
  double sum = 0.0;
  for (const float x : sample.input) sum += x;
  EXPECT_NEAR(sum / static_cast<double>(sample.input.size()), 0.5, 0.02);
  EXPECT_NE(sample.input.back(), sample.input.front());
}

// The mean image of each class, learned from 200 samples, classifies 200 others.
TEST(SyntheticSource, ClassesCanBeLearned) {
  const SyntheticSource source({.size = 400, .input_shape = {64}, .classes = 5});
  std::vector<std::vector<double>> mean(5, std::vector<double>(64));
  std::vector<int> seen(5);
  for (int64_t i = 0; i < 200; ++i) {
    const Sample s = read_class(source, i);
    ++seen[static_cast<size_t>(s.label)];
    for (size_t j = 0; j < 64; ++j) mean[static_cast<size_t>(s.label)][j] += s.input[j];
  }
  for (size_t c = 0; c < 5; ++c) {
    ASSERT_GT(seen[c], 10);
    for (double& m : mean[c]) m /= seen[c];
  }
  int right = 0;
  for (int64_t i = 200; i < 400; ++i) {
    const Sample s = read_class(source, i);
    std::array<double, 5> distance{};
    for (size_t c = 0; c < 5; ++c) {
      for (size_t j = 0; j < 64; ++j) distance[c] += (s.input[j] - mean[c][j]) * (s.input[j] - mean[c][j]);
    }
    right += std::min_element(distance.begin(), distance.end()) - distance.begin() == s.label;
  }
  EXPECT_GT(right, 180);
}

TEST(SyntheticSource, RefusesWhatMakesNoSense) {
  EXPECT_THAT([] { SyntheticSource({.size = 0}); }, ThrowsMessage<InvalidArgument>(HasSubstr("0 samples")));
  EXPECT_THAT([] { SyntheticSource({.classes = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("0 classes")));
  EXPECT_THAT(
      [] {
        SyntheticSource({.input_shape = {2, 0}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("(2, 0)")));
  EXPECT_THAT([] { SyntheticSource({.noise = 1.5f}); }, ThrowsMessage<InvalidArgument>(HasSubstr("1.5")));
}

std::shared_ptr<const Source> two_of_each() {
  return std::make_shared<ArraySource>(
      ArraysData{.name = "two of each",
                 .inputs = {{.name = "a", .shape = {1}, .values = std::vector<float>{0, 1, 2}},
                            {.name = "b",
                             .shape = {2},
                             .values = std::vector<uint8_t>{0, 51, 102, 153, 204, 255},
                             .divisor = 255.0f}},
                 .labels = {{.name = "c", .shape = {}, .values = std::vector<int32_t>{5, 6, 7}, .classes = 8},
                            {.name = "d", .shape = {2, 1}, .values = std::vector<float>{1, 2, 3, 4, 5, 6}}}});
}

struct WholeSample {
  std::vector<std::vector<float>> inputs, labels, weights;
};

// All fields of a sample; int32 labels as numbers.
WholeSample read_whole(const Source& source, int64_t index) {
  WholeSample sample;
  std::vector<std::vector<int32_t>> words;  // memory of labels
  std::vector<std::span<float>> inputs, weights;
  std::vector<std::span<std::byte>> labels;
  const auto fields = source.labels();
  for (const SampleField& field : source.inputs()) {
    sample.inputs.emplace_back(static_cast<size_t>(field.shape.elements()));
  }
  for (const SampleField& field : fields) {
    words.emplace_back(static_cast<size_t>(field.shape.elements()));
    sample.weights.emplace_back(field.weights ? static_cast<size_t>(field.weights->elements()) : 0);
  }
  for (auto& values : sample.inputs) inputs.emplace_back(values);
  for (auto& values : words) labels.push_back(std::as_writable_bytes(std::span(values)));
  for (auto& values : sample.weights) weights.emplace_back(values);
  source.read_all(index, {inputs, labels, weights});
  source.read_weights(index, {inputs, labels, weights});
  for (size_t i = 0; i < fields.size(); ++i) {
    std::vector<float> values;
    for (const int32_t word : words[i]) {
      values.push_back(fields[i].dtype == DType::kI32 ? static_cast<float>(word)
                                                      : std::bit_cast<float>(word));
    }
    sample.labels.push_back(std::move(values));
  }
  return sample;
}

TEST(SeveralArrays, AreReadSelectedAndSplitTogether) {
  const auto source = two_of_each();
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(source->input_shape(), Shape{1});
  EXPECT_EQ(source->labels()[1].shape, (Shape{2, 1}));
  const WholeSample whole = read_whole(*source, 1);
  EXPECT_THAT(whole.inputs, ElementsAre(ElementsAre(1), ElementsAre(0.4f, 0.6f)));
  EXPECT_THAT(whole.labels, ElementsAre(ElementsAre(6), ElementsAre(3, 4)));

  const SelectedSource selected(source, {1, 0}, {1});
  EXPECT_EQ(selected.inputs()[0].name, "b");
  const WholeSample part = read_whole(selected, 2);
  EXPECT_THAT(part.inputs, ElementsAre(ElementsAre(0.8f, 1.0f), ElementsAre(2)));
  EXPECT_THAT(part.labels, ElementsAre(ElementsAre(5, 6)));
  EXPECT_NE(selected.digest(), source->digest());
  EXPECT_THAT([&] { SelectedSource(source, {0}, {2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("label 2 of two of each does not exist; it has 2")));
  EXPECT_THAT(
      [&] {
        SelectedSource(source, {0, 0}, {});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("selected twice")));

  const TrainValidation parts = split_validation(source, 0.4);
  EXPECT_THAT(read_whole(*parts.validation, 1).labels, ElementsAre(ElementsAre(7), ElementsAre(5, 6)));
  EXPECT_THAT(
      [] {
        ArraySource(ArraysData{.inputs = {{.name = "a", .shape = {1}, .values = std::vector<float>{1, 2}},
                                          {.name = "b", .shape = {1}, .values = std::vector<float>{1}}},
                               .labels = {{.values = std::vector<int32_t>{1, 2}}}});
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("inputs \"b\" have 1 samples"), HasSubstr("2"))));
}

TEST(WeightedSource, WeighsLabelsByThemselvesAndInTimeSteps) {
  const auto source = two_of_each();
  const auto weighted =
      std::make_shared<WeightedSource>(source, std::vector<std::vector<float>>{{}, {1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(weighted->labels()[0].weights, std::nullopt);
  EXPECT_EQ(weighted->labels()[1].weights, Shape{2});
  EXPECT_THAT(read_whole(*weighted, 1).weights, ElementsAre(ElementsAre(), ElementsAre(3, 4)));
  // Weights of samples times those in their time steps.
  const WeightedSource both(weighted, std::vector<float>{10, 20, 30});
  EXPECT_THAT(read_whole(both, 2).weights, ElementsAre(ElementsAre(30), ElementsAre(150, 180)));
  const WeightedSource turned(std::make_shared<WeightedSource>(source, std::vector<float>{10, 20, 30}),
                              std::vector<std::vector<float>>{{}, {1, 2, 3, 4, 5, 6}});
  EXPECT_THAT(read_whole(turned, 2).weights, ElementsAre(ElementsAre(30), ElementsAre(150, 180)));
  const SelectedSource selected(weighted, {0}, {1});
  EXPECT_THAT(read_whole(selected, 0).weights, ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT([&] { WeightedSource(source, std::vector<std::vector<float>>{{}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("for 1 labels, but two of each has 2")));
  EXPECT_THAT(
      [&] {
        WeightedSource(source, std::vector<float>{1, 2, 3, 4, 5, 6});
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("6 weights"), HasSubstr("3 samples"))));
  EXPECT_THAT(
      [&] {
        WeightedSource(source, {{0, 1.0}}, 1);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("class_weight is for one label")));
}

}  // namespace
}  // namespace rondo
