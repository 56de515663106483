// GradSync on devices whose streams run later: the host only queues, and still every sum is exact.
#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/gradsync/grad_sync.h"
#include "tests/support/guarded_communicator.h"
#include "tests/support/guarded_device.h"

namespace rondo {
namespace {

using test::GuardedDevice;

constexpr BucketOptions kSmall{.first_bytes = 32 * 4, .bytes = 64 * 4};
const std::vector<int64_t> kCounts{1, 0, 17, 300, 5, 64, 3};

float weight(size_t parameter, size_t element) {
  return static_cast<float>(1000 * (parameter + 1) + element);
}
float gradient(int rank, int step, size_t parameter, size_t element) {
  return static_cast<float>((rank + 1) * 3 + step + static_cast<int>(parameter) * 5 +
                            static_cast<int>(element % 11));
}

// One rank: parameters on the device, and memory of the host that lives as long as copies from and to it.
class Rank {
 public:
  Rank(Communicator& host, GuardedDevice& device)
      : rank_(host.rank()), ranks_(host.size()), device_(device), stream_(device.make_stream()) {
    for (size_t p = 0; p < kCounts.size(); ++p) {
      Parameter& parameter = storage_.emplace_back();
      parameter.name = "p" + std::to_string(p);
      parameter.desc = {{kCounts[p]}, DType::kF32};
      parameter.value_storage = device.allocate(parameter.desc.bytes());
      parameter.value = {parameter.desc, parameter.value_storage.data()};
      auto& values = staged(kCounts[p]);
      for (size_t i = 0; i < values.size(); ++i) values[i] = weight(p, i);
      stream_->copy(parameter.value.data, values.data(), parameter.desc.bytes());
      list_.push_back(&parameter);
    }
    stream_->synchronize();
  }

  const ParameterList& parameters() const { return list_; }

  void step(GradSync& sync, int step, bool has_rows) {
    sync.begin(*stream_);
    auto& tail = staged(2);
    tail = {static_cast<float>(rank_), 1.0f};
    stream_->copy(sync.tail().data(), tail.data(), 2 * sizeof(float));
    if (has_rows) {
      std::vector<size_t> order(kCounts.size());
      for (size_t p = 0; p < order.size(); ++p) order[p] = p;
      std::mt19937 random(static_cast<unsigned>(rank_ * 100 + step));
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t p : order) write_gradient(sync, p, step);
    } else {
      sync.contribute_zeros();
    }
    for (int b = 0; b < sync.buckets(); ++b) {
      const BucketSpan span = sync.wait(b);
      auto& sums = staged(static_cast<int64_t>(span.gradients.size()));
      stream_->copy(sums.data(), span.gradients.data(), static_cast<int64_t>(span.gradients.size_bytes()));
      results_.push_back({step, b, &sums});
    }
    auto& tails = staged(2);
    stream_->copy(tails.data(), sync.tail().data(), 2 * sizeof(float));
    tails_.push_back(&tails);
  }

  void finish() { stream_->synchronize(); }

  // `zeros(step)` is a rank that had no rows in it, or -1.
  template <class Zeros>
  void check(const GradSync& sync, const Zeros& zeros) const {
    for (const auto& [step, b, sums] : results_) {
      for (const BucketSlot& slot : sync.plan()[static_cast<size_t>(b)].slots) {
        const size_t p = kCounts.size() - 1 - static_cast<size_t>(slot.parameter);  // backward order
        for (int64_t i = 0; i < slot.count; ++i) {
          float expected = 0.0f;
          for (int r = 0; r < ranks_; ++r) {
            if (r != zeros(step)) expected += gradient(r, step, p, static_cast<size_t>(i));
          }
          ASSERT_EQ((*sums)[static_cast<size_t>(slot.offset + i)], expected)
              << "step " << step << ", parameter " << p << ", element " << i;
        }
      }
    }
    for (const auto* tail : tails_) {
      EXPECT_EQ((*tail)[0], static_cast<float>(ranks_ * (ranks_ - 1) / 2));
      EXPECT_EQ((*tail)[1], static_cast<float>(ranks_));
    }
  }

  void expect_weights() {
    for (size_t p = 0; p < kCounts.size(); ++p) {
      std::vector<float> values(static_cast<size_t>(kCounts[p]));
      stream_->copy(values.data(), list_[p]->value.data, list_[p]->value.bytes());
      stream_->synchronize();
      for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], weight(p, i));
    }
  }

 private:
  struct Result {
    int step;
    int bucket;
    const std::vector<float>* sums;
  };

  std::vector<float>& staged(int64_t count) { return staging_.emplace_back(static_cast<size_t>(count)); }

  void write_gradient(GradSync& sync, size_t p, int step) {
    auto& values = staged(kCounts[p]);
    for (size_t i = 0; i < values.size(); ++i) values[i] = gradient(rank_, step, p, i);
    stream_->copy(list_[p]->grad.data, values.data(), list_[p]->grad.bytes());
    sync.ready(*list_[p]);
  }

  int rank_, ranks_;
  GuardedDevice& device_;
  std::deque<Parameter> storage_;
  ParameterList list_;
  std::deque<std::vector<float>> staging_;
  std::vector<Result> results_;
  std::vector<const std::vector<float>*> tails_;
  std::unique_ptr<Stream> stream_;
};

class GradSyncDevices : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GradSyncDevices, testing::Values(1, 2, 3, 8));

TEST_P(GradSyncDevices, StepsThatAreOnlyQueuedSumExactly) {
  const int ranks = GetParam();
  run_ranks(ranks, [&](Communicator& host) {
    GuardedDevice device({.seed = static_cast<uint64_t>(host.rank() + 1)});
    const auto comm = test::make_guarded_communicator(host, device);
    Rank rank(host, device);
    GradSync sync(*comm, device, rank.parameters(), 2, kSmall);
    ASSERT_GT(sync.buckets(), 2);
    rank.expect_weights();

    const auto zeros = [ranks](int step) { return ranks > 1 && step % 3 == 2 ? step % ranks : -1; };
    const int64_t synchronizations = device.counts().synchronizations;
    for (int step = 0; step < 8; ++step) rank.step(sync, step, zeros(step) != host.rank());
    EXPECT_EQ(device.counts().synchronizations, synchronizations);
    EXPECT_EQ(device.counts().event_waits, 0);
    rank.finish();
    rank.check(sync, zeros);
    rank.expect_weights();
  });
}

}  // namespace
}  // namespace rondo
