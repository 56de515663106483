#include "bench/allreduce_contestants.h"

#include <benchmark/benchmark.h>
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <mutex>

#include "runtime/base/error.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/mpi/mpi_check.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/device/cpu/cpu_device.h"

namespace rondo::bench {
namespace {

class RondoContestant final : public Contestant {
 public:
  RondoContestant(std::string_view name, Communicator& comm, Buffer buffer)
      : name_(name), comm_(comm), buffer_(std::move(buffer)) {}
  std::string_view name() const override { return name_; }
  float* data() override { return buffer_.as<float>(); }
  void run(int64_t count) override {
    const Span span{data(), count, DType::kF32};
    comm_.all_reduce(span, span, ReduceOp::kSum).wait();
  }

 private:
  std::string_view name_;
  Communicator& comm_;
  Buffer buffer_;
};

class MpiContestant final : public Contestant {
 public:
  explicit MpiContestant(Field& field) : field_(field) {}
  std::string_view name() const override { return "mpi"; }
  float* data() override { return field_.user.as<float>(); }
  void run(int64_t count) override {
    const std::lock_guard lock(field_.session->lock());
    RONDO_CHECK(count <= INT_MAX);
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
        "MPI_Allreduce");
  }

 private:
  Field& field_;
};

class MemcpyContestant final : public Contestant {
 public:
  explicit MemcpyContestant(Field& field) : field_(field) {}
  std::string_view name() const override { return "memcpy"; }
  float* data() override { return field_.user.as<float>(); }
  void run(int64_t count) override {
    std::memcpy(field_.target.data(), field_.user.data(), static_cast<size_t>(count) * sizeof(float));
    benchmark::ClobberMemory();
  }
  bool sums() const override { return false; }

 private:
  Field& field_;
};

constexpr bool kHasGloo =
#ifdef RONDO_HAS_GLOO
    true;
#else
    false;
#endif

std::unique_ptr<Contestant> make_contestant(const std::string& name, Field& field) {
  if (name == "rondo") {
    return std::make_unique<RondoContestant>("rondo", *field.comm,
                                             field.comm->allocate(field.capacity * sizeof(float)));
  }
  if (name == "rondo_user") return std::make_unique<RondoContestant>("rondo_user", *field.comm, field.user);
  if (name == "mpi") return std::make_unique<MpiContestant>(field);
  if (name == "memcpy") return std::make_unique<MemcpyContestant>(field);
  if constexpr (kHasGloo) {
    if (name == "gloo") return make_gloo_contestant(field);
  }
  std::string known;
  for (const std::string& each : contestant_names()) known += (known.empty() ? "" : ", ") + each;
  raise<InvalidArgument>("\"{}\" is no implementation of this build, which has {}{}", name, known,
                         kHasGloo ? "" : " (Gloo was not found when it was configured: libgloo-dev)");
}

}  // namespace

Field make_field(int64_t max_bytes) {
  Field field;
  field.session = MpiSession::start();
  field.device = make_cpu_device(1);
  field.comm = make_host_communicator(field.session, *field.device);
  field.capacity = max_bytes / static_cast<int64_t>(sizeof(float));
  for (Buffer* buffer : {&field.user, &field.target}) {
    *buffer = field.device->allocate(max_bytes);
    std::memset(buffer->data(), 0, static_cast<size_t>(max_bytes));
  }
  return field;
}

std::vector<std::string> contestant_names() {
  std::vector<std::string> names{"rondo", "rondo_user", "mpi", "gloo", "memcpy"};
  if constexpr (!kHasGloo) std::erase(names, "gloo");
  return names;
}

std::vector<std::unique_ptr<Contestant>> make_contestants(const std::vector<std::string>& names,
                                                          Field& field) {
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (const std::string& name : names) {
    contestants.push_back(make_contestant(name, field));
    std::fill_n(contestants.back()->data(), field.capacity, 0.0f);
  }
  return contestants;
}

#ifndef RONDO_HAS_GLOO
std::unique_ptr<Contestant> make_gloo_contestant(Field& /*field*/) {
  raise<Unavailable>("this build has no Gloo: install libgloo-dev and configure again");
}
#endif

}  // namespace rondo::bench
