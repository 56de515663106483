#include "bench/allreduce_contestants.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <mutex>
#include <span>

#include "runtime/base/error.h"
#include "runtime/comm/host/host_communicator.h"
#include "runtime/comm/mpi/mpi_check.h"
#include "runtime/comm/mpi/session.h"
#include "runtime/comm/topology.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/launch/cores.h"
#include "runtime/launch/gpu_connect.h"

namespace rondo::bench {
namespace {

class RondoContestant final : public HostContestant {
 public:
  RondoContestant(std::string_view name, Communicator& comm, Buffer buffer)
      : name_(name), comm_(comm), buffer_(std::move(buffer)) {}
  std::string_view name() const override { return name_; }

 protected:
  float* data() override { return buffer_.as<float>(); }
  void run_once(int64_t count) override {
    const Span span{data(), count, DType::kF32};
    comm_.all_reduce(span, span, ReduceOp::kSum).wait();
  }

 private:
  std::string_view name_;
  Communicator& comm_;
  Buffer buffer_;
};

class MpiContestant final : public HostContestant {
 public:
  explicit MpiContestant(Field& field) : field_(field) {}
  std::string_view name() const override { return "mpi"; }

 protected:
  float* data() override { return field_.user.as<float>(); }
  void run_once(int64_t count) override {
    const std::lock_guard lock(field_.session->lock());
    RONDO_CHECK(count <= INT_MAX);
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
        "MPI_Allreduce");
  }

 private:
  Field& field_;
};

class MemcpyContestant final : public HostContestant {
 public:
  explicit MemcpyContestant(Field& field) : field_(field) {}
  std::string_view name() const override { return "memcpy"; }
  bool sums() const override { return false; }

 protected:
  float* data() override { return field_.user.as<float>(); }
  void run_once(int64_t count) override {
    std::memcpy(field_.target.data(), field_.user.data(), static_cast<size_t>(count) * sizeof(float));
    benchmark::ClobberMemory();
  }

 private:
  Field& field_;
};

// On the memory of a GPU. Calls are queued one behind the other, as a training queues them.
class GpuContestant final : public Contestant {
 public:
  // Without a target: sums. With one: copies to it.
  GpuContestant(std::string_view name, Field& field, Buffer buffer, Buffer target = {})
      : name_(name), field_(field), buffer_(std::move(buffer)), target_(std::move(target)) {}
  std::string_view name() const override { return name_; }
  bool sums() const override { return !target_; }

  void put(const float* values, int64_t count) override { copy(buffer_.data(), values, count); }
  void get(float* values, int64_t count) override { copy(values, buffer_.data(), count); }
  void run(int64_t count, int calls) override {
    const Span span{buffer_.data(), count, DType::kF32};
    for (int i = 0; i < calls; ++i) {
      if (target_) {
        field_.stream->copy(target_.data(), buffer_.data(), count * static_cast<int64_t>(sizeof(float)));
      } else {
        field_.comm().all_reduce(span, span, ReduceOp::kSum).order_before(*field_.stream);
      }
    }
    field_.stream->synchronize();
  }

 private:
  void copy(void* to, const void* from, int64_t count) {
    field_.stream->copy(to, from, count * static_cast<int64_t>(sizeof(float)));
    field_.stream->synchronize();
  }

  std::string_view name_;
  Field& field_;
  Buffer buffer_;
  Buffer target_;
};

constexpr bool kHasGloo =
#ifdef RONDO_HAS_GLOO
    true;
#else
    false;
#endif

Buffer own_memory(const Field& field) {
  return field.comm().allocate(field.capacity * static_cast<int64_t>(sizeof(float)));
}

std::unique_ptr<Contestant> make_gpu_contestant(const std::string& name, Field& field) {
  if (name == "rondo") return std::make_unique<GpuContestant>("rondo", field, own_memory(field));
  if (name == "rondo_user") return std::make_unique<GpuContestant>("rondo_user", field, field.user);
  RONDO_CHECK(name == "memcpy");
  return std::make_unique<GpuContestant>("memcpy", field, field.user, field.target);
}

std::unique_ptr<Contestant> make_contestant(const std::string& name, Field& field) {
  const std::vector<std::string> names =
      contestant_names(field.gpus ? DeviceChoice::kCuda : DeviceChoice::kCpu);
  require(std::find(names.begin(), names.end(), name) != names.end(),
          "\"{}\" is no implementation to measure here; there are {}{}", name, fmt::join(names, ", "),
          kHasGloo ? "" : " (Gloo was not found when this was configured: libgloo-dev)");
  if (field.gpus) return make_gpu_contestant(name, field);
  if (name == "rondo") return std::make_unique<RondoContestant>("rondo", field.comm(), own_memory(field));
  if (name == "rondo_user") return std::make_unique<RondoContestant>("rondo_user", field.comm(), field.user);
  if (name == "mpi") return std::make_unique<MpiContestant>(field);
  if (name == "memcpy") return std::make_unique<MemcpyContestant>(field);
  return make_gloo_contestant(field);
}

Binding bind(const BindOptions& options, const Topology& topology) {
  const CoreSet cores = affinity_cores();
  return bind_device(options, cores, std::span(&cores, 1),
                     {.local_rank = topology.local_rank, .local_size = topology.local_size});
}

}  // namespace

void HostContestant::put(const float* values, int64_t count) {
  std::copy_n(values, count, data());
}

void HostContestant::get(float* values, int64_t count) {
  std::copy_n(data(), count, values);
}

Field make_field(int64_t max_bytes, const BindOptions& options) {
  Field field;
  field.session = MpiSession::start();
  field.host_device = make_cpu_device(1);
  field.host = make_host_communicator(field.session, *field.host_device);
  field.binding = bind(options, field.host->topology());
  field.gpus = connect_devices(*field.host, field.binding, options);
  Device& device = *field.binding.device;
  field.stream = device.make_stream();
  field.capacity = max_bytes / static_cast<int64_t>(sizeof(float));
  for (Buffer* buffer : {&field.user, &field.target}) {
    *buffer = device.allocate(max_bytes);
    field.stream->fill_zero(buffer->data(), max_bytes);
  }
  field.stream->synchronize();
  return field;
}

std::vector<std::string> contestant_names(DeviceChoice device) {
  if (device == DeviceChoice::kCuda) return {"rondo", "rondo_user", "memcpy"};
  std::vector<std::string> names{"rondo", "rondo_user", "mpi", "gloo", "memcpy"};
  if constexpr (!kHasGloo) std::erase(names, "gloo");
  return names;
}

std::vector<std::unique_ptr<Contestant>> make_contestants(const std::vector<std::string>& names,
                                                          Field& field) {
  std::vector<std::unique_ptr<Contestant>> contestants;
  const std::vector<float> zeros(static_cast<size_t>(field.capacity));
  for (const std::string& name : names) {
    contestants.push_back(make_contestant(name, field));
    contestants.back()->put(zeros.data(), field.capacity);
  }
  return contestants;
}

#ifndef RONDO_HAS_GLOO
std::unique_ptr<Contestant> make_gloo_contestant(Field& /*field*/) {
  raise<Unavailable>("this build has no Gloo: install libgloo-dev and configure again");
}
#endif

}  // namespace rondo::bench
