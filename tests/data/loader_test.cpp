#include "runtime/data/loader.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/data/source.h"
#include "tests/support/count_allocations.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Sample i is (i, i + 0.5) with label 2 i.
class CountingSource : public Source {
 public:
  explicit CountingSource(int64_t size) : size_(size) {}
  std::string name() const override { return "counting"; }
  int64_t size() const override { return size_; }
  Shape input_shape() const override { return {2}; }
  Shape label_shape() const override { return {}; }
  DType label_dtype() const override { return DType::kI32; }
  int64_t classes() const override { return 0; }
  uint64_t digest() const override { return 0; }
  void read(int64_t index, std::span<float> input, std::span<std::byte> label) const override {
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    if (index == bad_sample) throw FileError("disk.bin: cannot be read");
    if (index == odd_sample) throw 42;
    input[0] = static_cast<float>(index);
    input[1] = static_cast<float>(index) + 0.5f;
    const auto value = static_cast<int32_t>(2 * index);
    std::memcpy(label.data(), &value, sizeof value);
    ++reads;
  }

  std::chrono::microseconds delay{0};
  int64_t bad_sample = -1;
  int64_t odd_sample = -1;
  mutable std::atomic<int64_t> reads{0};

 private:
  int64_t size_;
};

void expect_batch(const LoadedBatch& batch, const Sampler& sampler) {
  const auto indices = sampler.indices(batch.step);
  ASSERT_EQ(batch.share, sampler.share(batch.step));
  ASSERT_THAT(batch.indices, testing::ElementsAreArray(indices));
  const int64_t rows = batch.share.rows;
  ASSERT_EQ(batch.inputs[0].desc.shape, (Shape{rows, 2}));
  ASSERT_EQ(batch.labels[0].desc.shape, (Shape{rows}));
  for (size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ(batch.inputs[0].as<float>()[2 * i], static_cast<float>(indices[i]));
    EXPECT_EQ(batch.inputs[0].as<float>()[2 * i + 1], static_cast<float>(indices[i]) + 0.5f);
    EXPECT_EQ(batch.labels[0].as<int32_t>()[i], 2 * indices[i]);
  }
}

class LoaderWith : public testing::TestWithParam<LoaderOptions> {};

TEST_P(LoaderWith, GivesEveryStepOfEveryEpochInOrder) {
  const auto source = std::make_shared<CountingSource>(103);
  const SamplerOptions options{.size = 103, .batch = 8, .seed = 1};
  Loader loader(source, Sampler(options), GetParam());
  Sampler expected(options);
  EXPECT_EQ(loader.next(), nullptr) << "nothing was started";
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    expected.set_epoch(epoch);
    loader.start(epoch);
    for (int64_t step = 0; step < expected.steps(); ++step) {
      const LoadedBatch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      EXPECT_EQ(batch->epoch, epoch);
      EXPECT_EQ(batch->step, step);
      expect_batch(*batch, expected);
      if (step % 3 == 0) loader.release();
    }
    EXPECT_EQ(loader.next(), nullptr);
    EXPECT_EQ(loader.next(), nullptr);
  }
  EXPECT_EQ(source->reads, 3 * 103);
}

TEST_P(LoaderWith, StartsInTheMiddleAndRestarts) {
  const auto source = std::make_shared<CountingSource>(50);
  const Sampler sampler({.size = 50, .batch = 4, .seed = 2});
  Loader loader(source, sampler, GetParam());
  loader.start(0, 5, 3);
  for (int64_t step = 5; step < 8; ++step) {
    const LoadedBatch* batch = loader.next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->step, step);
    expect_batch(*batch, sampler);
  }
  EXPECT_EQ(loader.next(), nullptr);
  for (int i = 0; i < 20; ++i) {  // what was read ahead is dropped
    loader.start(0, i % 3);
    const LoadedBatch* batch = loader.next();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->step, i % 3);
    expect_batch(*batch, sampler);
  }
  loader.stop();
  EXPECT_EQ(loader.next(), nullptr);
  loader.start(0, 13, 0);
  EXPECT_EQ(loader.next(), nullptr);
  EXPECT_THAT([&] { loader.start(0, 10, 4); }, ThrowsMessage<InvalidArgument>(HasSubstr("has 13 steps")));
  EXPECT_THAT([&] { loader.start(0, 14); }, ThrowsMessage<InvalidArgument>(HasSubstr("has 13 steps")));
  EXPECT_THAT([&] { loader.start(0, -1); }, ThrowsMessage<InvalidArgument>(HasSubstr("has 13 steps")));
}

// Kept batches are as they were given, though every free slot has been filled again.
TEST(Loader, KeepsTheBatchesBeforeTheLastOne) {
  const auto source = std::make_shared<CountingSource>(90);
  const Sampler sampler({.size = 90, .batch = 10, .seed = 4});
  for (const int workers : {0, 1, 3}) {
    Loader loader(source, sampler, {.workers = workers, .slots = 5, .keep = 2});
    loader.start(0);
    std::vector<const LoadedBatch*> given;
    for (int64_t step = 0; step < 9; ++step) {
      given.push_back(loader.next());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (int64_t kept = std::max<int64_t>(step - 2, 0); kept <= step; ++kept) {
        EXPECT_EQ(given[static_cast<size_t>(kept)]->step, kept);
        expect_batch(*given[static_cast<size_t>(kept)], sampler);
      }
    }
    EXPECT_EQ(loader.next(), nullptr);
  }
  EXPECT_THAT([&] { Loader(source, sampler, {.workers = 1, .slots = 3, .keep = 2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("at least 4")));
  EXPECT_THAT([&] { Loader(source, sampler, {.slots = 3, .keep = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("-1 batches")));
}

TEST_P(LoaderWith, GivesEmptyShares) {
  const auto source = std::make_shared<CountingSource>(7);
  for (int rank = 0; rank < 4; ++rank) {
    const Sampler sampler({.size = 7, .batch = 3, .rank = rank, .world = 4});
    Loader loader(source, sampler, GetParam());
    loader.start(0);
    for (int64_t step = 0; step < 3; ++step) {
      const LoadedBatch* batch = loader.next();
      ASSERT_NE(batch, nullptr);
      expect_batch(*batch, sampler);
      EXPECT_NE(batch->inputs[0].data, nullptr);
      if (rank == 0) {
        EXPECT_EQ(batch->share.rows, 0);
      }
    }
    EXPECT_EQ(loader.next(), nullptr);
  }
}

TEST_P(LoaderWith, RethrowsWhatTheSourceThrew) {
  const auto source = std::make_shared<CountingSource>(40);
  source->bad_sample = 17;
  Loader loader(source, Sampler({.size = 40, .batch = 4, .shuffle = false}), GetParam());
  for (int round = 0; round < 2; ++round) {
    loader.start(0);
    for (int64_t step = 0; step < 4; ++step) ASSERT_NE(loader.next(), nullptr) << "steps before it are whole";
    EXPECT_THAT(
        [&] { loader.next(); },
        ThrowsMessage<FileError>(AllOf(HasSubstr("sample 17 of counting"), HasSubstr("step 4 of epoch 0"),
                                       HasSubstr("disk.bin: cannot be read"))));
    EXPECT_THAT([&] { loader.next(); }, ThrowsMessage<InvalidArgument>(HasSubstr("failed before")));
  }
  source->bad_sample = -1;
  source->odd_sample = 0;
  loader.start(0);
  EXPECT_THAT([&] { loader.next(); }, ThrowsMessage<Error>(HasSubstr("sample 0 of counting")));
  source->odd_sample = -1;
  loader.start(0);
  EXPECT_NE(loader.next(), nullptr);
}

TEST_P(LoaderWith, StopsAtAnyTime) {
  const auto source = std::make_shared<CountingSource>(1000);
  source->delay = std::chrono::microseconds(50);
  for (int given = 0; given < 6; ++given) {
    Loader loader(source, Sampler({.size = 1000, .batch = 100}), GetParam());
    loader.start(0);
    for (int i = 0; i < given; ++i) ASSERT_NE(loader.next(), nullptr);
  }
  Loader never_started(source, Sampler({.size = 1000, .batch = 100}), GetParam());
}

TEST_P(LoaderWith, AllocatesNothingAfterConstruction) {
  const auto source = std::make_shared<CountingSource>(500);
  Loader loader(source, Sampler({.size = 500, .batch = 16}), GetParam());
  const int64_t before = test::allocations_of_all_threads();
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    loader.start(epoch);
    while (loader.next() != nullptr) {
    }
  }
  EXPECT_EQ(test::allocations_of_all_threads() - before, 0);
}

INSTANTIATE_TEST_SUITE_P(Workers, LoaderWith,
                         testing::Values(LoaderOptions{.workers = 0, .slots = 1},
                                         LoaderOptions{.workers = 1, .slots = 2}, LoaderOptions{},
                                         LoaderOptions{.workers = 3, .slots = 2},
                                         LoaderOptions{.workers = 4, .slots = 7}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.workers) + "x" +
                                  std::to_string(tested.param.slots);
                         });

TEST(Loader, ReadsAheadNoFurtherThanItsSlots) {
  const auto source = std::make_shared<CountingSource>(100);
  Loader loader(source, Sampler({.size = 100, .batch = 10}), {.workers = 1, .slots = 3});
  loader.start(0);
  ASSERT_NE(loader.next(), nullptr);
  while (source->reads < 30) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(source->reads, 30);
  loader.release();
  while (source->reads < 40) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(Loader, CountsWaitsAndSleepsThroughThem) {
  const auto source = std::make_shared<CountingSource>(4);
  source->delay = std::chrono::milliseconds(50);
  Loader loader(source, Sampler({.size = 4, .batch = 4}));
  EXPECT_EQ(loader.wait_seconds(), 0.0);
  const std::clock_t cpu = std::clock();  // of all threads
  loader.start(0);
  ASSERT_NE(loader.next(), nullptr);
  EXPECT_GE(loader.wait_seconds(), 0.19);
  EXPECT_LT(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, 0.1)
      << "waiting must not use the processor";
}

TEST(Loader, TakesSlotsFromTheGivenAllocator) {
  const auto source = std::make_shared<CountingSource>(10);
  int calls = 0;
  std::vector<std::shared_ptr<std::vector<std::byte>>> pool;
  LoaderOptions options{.workers = 1, .slots = 2};
  options.allocate = [&](int64_t bytes) {
    ++calls;
    pool.push_back(std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes)));
    return Buffer(pool.back()->data(), bytes, pool.back());
  };
  Loader loader(source, Sampler({.size = 10, .batch = 5}), options);
  EXPECT_EQ(calls, 4);
  loader.start(0);
  const LoadedBatch* batch = loader.next();
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->inputs[0].data, pool[0]->data());
  EXPECT_EQ(batch->labels[0].data, pool[1]->data());
}

TEST(Loader, RefusesWhatMakesNoSense) {
  const auto source = std::make_shared<CountingSource>(10);
  const auto make = [&](int64_t size, int workers, int slots) {
    return [=] { Loader(source, Sampler({.size = size}), {.workers = workers, .slots = slots}); };
  };
  EXPECT_THAT(make(9, 1, 3), ThrowsMessage<InvalidArgument>(HasSubstr("counting has 10")));
  EXPECT_THAT(make(10, -1, 3), ThrowsMessage<InvalidArgument>(HasSubstr("-1 loader workers")));
  EXPECT_THAT(make(10, 1, 1), ThrowsMessage<InvalidArgument>(HasSubstr("at least 2")));
  EXPECT_THAT(make(10, 0, 0), ThrowsMessage<InvalidArgument>(HasSubstr("at least 1")));
}

}  // namespace
}  // namespace rondo
