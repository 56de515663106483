#include "runtime/gradsync/grad_sync.h"

#include <gmock/gmock.h>

#include <barrier>
#include <chrono>
#include <cmath>
#include <deque>
#include <random>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/support/count_allocations.h"

namespace rondo {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr BucketOptions kSmall{.first_bytes = 32 * 4, .bytes = 64 * 4};

// A layout whose memory is larger than the logical tensor.
class PaddedLayout : public LayoutDetail {
 public:
  explicit PaddedLayout(int64_t elements) : elements_(elements) {}
  int64_t bytes() const override { return elements_ * 4; }
  bool equals(const LayoutDetail& other) const override { return other.text() == text(); }
  std::string text() const override { return "padded"; }

 private:
  int64_t elements_;
};

// Parameters whose values are their position; the first of them cannot be trained.
struct Parameters {
  explicit Parameters(Device& device, const std::vector<int64_t>& counts) {
    add(device, {{7}, DType::kF32}).trainable = false;
    for (const int64_t count : counts) add(device, {{count}, DType::kF32});
  }
  Parameter& add(Device& device, const TensorDesc& desc) {
    Parameter& parameter = storage.emplace_back();
    parameter.name = "p" + std::to_string(storage.size() - 1);
    parameter.desc = desc;
    parameter.value_storage = device.allocate(desc.bytes());
    parameter.value = {desc, parameter.value_storage.data()};
    float next = static_cast<float>(1000 * storage.size());
    for (float& value : parameter.value.memory<float>()) value = next++;
    list.push_back(&parameter);
    return parameter;
  }
  std::deque<Parameter> storage;
  ParameterList list;
};

float gradient(int rank, int step, size_t parameter, size_t element) {
  return static_cast<float>((rank + 1) * 3 + step + static_cast<int>(parameter) * 5 +
                            static_cast<int>(element % 11));
}

float summed(int ranks, int step, size_t parameter, size_t element) {
  float sum = 0.0f;
  for (int rank = 0; rank < ranks; ++rank) sum += gradient(rank, step, parameter, element);
  return sum;
}

void write_gradient(Parameter& parameter, int rank, int step, size_t index) {
  size_t element = 0;
  for (float& value : parameter.grad.memory<float>()) value = gradient(rank, step, index, element++);
}

// Brings the communicator's pools to more collectives at once than steps ever have.
void warm_up(Communicator& comm, std::barrier<>& all_done) {
  std::vector<float> values(16);
  std::vector<Work> in_flight;
  for (float& value : values) {
    const Span span = span_of(std::span(&value, 1));
    in_flight.push_back(comm.all_reduce(span, span, ReduceOp::kSum));
  }
  for (Work& work : in_flight) work.wait();
  all_done.arrive_and_wait();
}

class GradSyncRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GradSyncRanks, ::testing::Values(1, 2, 3, 4, 8));

// One-element, empty and oversize parameters, in an order of ready() that differs by rank.
TEST_P(GradSyncRanks, SumsAreExactWhateverTheOrderOfReady) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto stream = device->make_stream();
    Parameters parameters(*device, {1, 0, 17, 300, 5, 64, 3});
    parameters.add(*device, {{3, 3}, DType::kF32, Layout(std::make_shared<PaddedLayout>(32))});
    GradSync sync(comm, *device, parameters.list, 2, kSmall);
    ASSERT_GT(sync.buckets(), 2);

    for (int step = 0; step < 4; ++step) {
      std::vector<size_t> order;
      for (size_t i = 1; i < parameters.list.size(); ++i) order.push_back(i);
      std::mt19937 random(static_cast<unsigned>(comm.rank() * 100 + step));
      std::shuffle(order.begin(), order.end(), random);

      sync.begin(*stream);
      sync.tail()[0] = static_cast<float>(comm.rank());
      sync.tail()[1] = 1.0f;
      for (const size_t i : order) {
        write_gradient(*parameters.list[i], comm.rank(), step, i);
        if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
        sync.ready(*parameters.list[i]);
      }
      for (int b = 0; b < sync.buckets(); ++b) {
        const BucketSpan span = sync.wait(b);
        EXPECT_EQ(span.weights.size(), span.gradients.size());
        for (float& weight : span.weights) weight += 1.0f;
      }
      EXPECT_EQ(sync.tail()[0], static_cast<float>(ranks * (ranks - 1) / 2));
      EXPECT_EQ(sync.tail()[1], static_cast<float>(ranks));
      for (size_t i = 1; i < parameters.list.size(); ++i) {
        const Parameter& parameter = *parameters.list[i];
        const auto values = parameter.value.memory<float>();
        const auto gradients = parameter.grad.memory<float>();
        ASSERT_EQ(values.size(), static_cast<size_t>(parameter.desc.bytes() / 4));
        for (size_t e = 0; e < values.size(); ++e) {
          EXPECT_EQ(gradients[e], summed(ranks, step, i, e)) << parameter.name << " " << e;
          EXPECT_EQ(values[e], static_cast<float>(1000 * (i + 1) + e) + static_cast<float>(step + 1));
        }
      }
    }
  });
}

TEST_P(GradSyncRanks, ARankWithoutRowsContributesZeros) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto stream = device->make_stream();
    Parameters parameters(*device, {40, 9, 70});
    GradSync sync(comm, *device, parameters.list, 1, kSmall);
    for (int step = 0; step < 3; ++step) {
      sync.begin(*stream);
      sync.tail()[0] = 2.0f;
      if (comm.rank() == 0) {
        for (size_t i = parameters.list.size(); i-- > 1;) {
          write_gradient(*parameters.list[i], 0, step, i);
          sync.ready(*parameters.list[i]);
        }
      } else {
        sync.contribute_zeros();  // the sums of the step before still lie in the buckets
      }
      for (int b = 0; b < sync.buckets(); ++b) sync.wait(b);
      EXPECT_EQ(sync.tail()[0], 2.0f * static_cast<float>(ranks));
      for (size_t i = 1; i < parameters.list.size(); ++i) {
        size_t e = 0;
        for (const float value : parameters.list[i]->grad.memory<float>()) {
          EXPECT_EQ(value, gradient(0, step, i, e++));
        }
      }
    }
  });
}

TEST_P(GradSyncRanks, WithoutTrainableParametersTheTailStillTravels) {
  run_ranks(GetParam(), [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto stream = device->make_stream();
    Parameters parameters(*device, {});
    GradSync sync(comm, *device, parameters.list, 1);
    ASSERT_EQ(sync.buckets(), 1);
    for (int step = 1; step < 3; ++step) {
      sync.begin(*stream);
      sync.tail()[0] = static_cast<float>(step);
      EXPECT_TRUE(sync.wait(0).weights.empty());
      EXPECT_EQ(sync.tail()[0], static_cast<float>(step * comm.size()));
    }
    EXPECT_FALSE(parameters.list[0]->grad);
  });
}

TEST_P(GradSyncRanks, AStepAllocatesNothing) {
  std::barrier warm(GetParam());
  run_ranks(GetParam(), [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto stream = device->make_stream();
    Parameters parameters(*device, {40, 9, 70, 1});
    GradSync sync(comm, *device, parameters.list, 1, kSmall);
    warm_up(comm, warm);
    int64_t before = 0;
    for (int step = 0; step < 20; ++step) {
      if (step == 2) before = test::allocations_of_this_thread();
      sync.begin(*stream);
      if (step % 3 == 0 && comm.rank() % 2 == 1) {
        sync.contribute_zeros();
      } else {
        for (size_t i = parameters.list.size(); i-- > 1;) sync.ready(*parameters.list[i]);
      }
      for (int b = 0; b < sync.buckets(); ++b) sync.wait(b);
      sync.tail()[0] = 0.0f;
    }
    EXPECT_EQ(test::allocations_of_this_thread() - before, 0);
  });
}

TEST_P(GradSyncRanks, ValuesAndGradientsOutliveIt) {
  run_ranks(GetParam(), [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto stream = device->make_stream();
    Parameters parameters(*device, {40, 9});
    {
      GradSync sync(comm, *device, parameters.list, 0, kSmall);
      sync.begin(*stream);
      sync.contribute_zeros();
      for (int b = 0; b < sync.buckets(); ++b) sync.wait(b);
    }
    for (size_t i = 1; i < parameters.list.size(); ++i) {
      EXPECT_EQ(parameters.list[i]->value.memory<float>()[3], static_cast<float>(1000 * (i + 1) + 3));
      for (float& value : parameters.list[i]->grad.memory<float>()) value = 1.0f;
    }
  });
}

// One rank: what is wrong locally.
class GradSyncErrors : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  std::vector<std::unique_ptr<Communicator>> comms_ = make_local_communicators(1);
  Communicator& comm_ = *comms_[0];
};

TEST_F(GradSyncErrors, AlignmentAndContiguity) {
  Parameters parameters(*device_, {5, 20, 3});
  GradSync sync(comm_, *device_, parameters.list, 0);
  ASSERT_EQ(sync.buckets(), 1);
  sync.begin(*stream_);
  sync.contribute_zeros();
  const BucketSpan span = sync.wait(0);
  // The last parameter comes first; each starts at a multiple of 64 bytes.
  EXPECT_EQ(parameters.list[3]->value.data, span.weights.data());
  EXPECT_EQ(parameters.list[2]->value.data, span.weights.data() + 16);
  EXPECT_EQ(parameters.list[1]->value.data, span.weights.data() + 48);
  EXPECT_EQ(parameters.list[1]->grad.data, span.gradients.data() + 48);
  EXPECT_EQ(span.weights.size(), 64u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(span.weights.data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(span.gradients.data()) % 64, 0u);
  for (const size_t gap : {3, 15, 36, 47, 53, 63}) EXPECT_EQ(span.weights[gap], 0.0f) << gap;
}

TEST_F(GradSyncErrors, MisuseOfReadyIsNamed) {
  Parameters parameters(*device_, {5, 20});
  GradSync sync(comm_, *device_, parameters.list, 0);
  sync.begin(*stream_);
  sync.ready(*parameters.list[2]);
  EXPECT_THAT([&] { sync.ready(*parameters.list[2]); },
              ThrowsMessage<InternalError>(HasSubstr("p2 is ready twice")));
  EXPECT_THAT([&] { sync.ready(*parameters.list[0]); }, ThrowsMessage<InternalError>(HasSubstr("p0")));
  EXPECT_THAT([&] { sync.contribute_zeros(); },
              ThrowsMessage<InternalError>(HasSubstr("p2 is ready already")));
}

TEST_F(GradSyncErrors, WaitingTooEarlyNamesWhatIsMissing) {
  Parameters parameters(*device_, {5, 20});
  GradSync sync(comm_, *device_, parameters.list, 0);
  sync.begin(*stream_);
  sync.ready(*parameters.list[2]);
  EXPECT_THAT([&] { sync.wait(0); }, ThrowsMessage<InternalError>(HasSubstr("p1")));
  sync.ready(*parameters.list[1]);
  EXPECT_NO_THROW(sync.wait(0));
}

TEST_F(GradSyncErrors, BucketsAreWaitedForOnceAndInOrder) {
  Parameters parameters(*device_, {40, 40, 40});
  GradSync sync(comm_, *device_, parameters.list, 0, kSmall);
  ASSERT_EQ(sync.buckets(), 2);
  EXPECT_THROW(sync.wait(0), InternalError);  // no step has begun
  sync.begin(*stream_);
  sync.contribute_zeros();
  EXPECT_THROW(sync.wait(1), InternalError);
  sync.wait(0);
  EXPECT_THROW(sync.wait(0), InternalError);
  EXPECT_THAT([&] { sync.begin(*stream_); }, ThrowsMessage<InternalError>(HasSubstr("bucket 1 of 2")));
  sync.wait(1);
  EXPECT_THROW(sync.wait(2), InternalError);
  EXPECT_NO_THROW(sync.begin(*stream_));
}

TEST_F(GradSyncErrors, ParametersThatCannotBeTrainedAreRefused) {
  Parameters twice(*device_, {5});
  twice.list.push_back(twice.list[1]);
  EXPECT_THAT([&] { GradSync(comm_, *device_, twice.list, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("p1 appears twice")));
  Parameters wide(*device_, {});
  wide.add(*device_, {{4}, DType::kF64});
  EXPECT_THAT([&] { GradSync(comm_, *device_, wide.list, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("float64")));
  Parameters empty(*device_, {5});
  empty.list[1]->value = {};
  EXPECT_THAT([&] { GradSync(comm_, *device_, empty.list, 0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no values")));
}

TEST_F(GradSyncErrors, TheDigestIsThatOfThePlan) {
  Parameters parameters(*device_, {40, 9, 70});
  const auto plan = GradSync::plan_for(parameters.list, 1, kSmall);
  GradSync sync(comm_, *device_, parameters.list, 1, kSmall);
  EXPECT_EQ(sync.digest(), digest(plan));
  EXPECT_GT(sync.plan().size(), 1u);
}

}  // namespace
}  // namespace rondo
