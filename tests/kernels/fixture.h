// What the kernel tests share: a backend, guarded operands, and the way between canonical float64 arrays and
// tensors in any layout.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/batch_norm.h"
#include "runtime/kernels/conv.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/kernels/dense.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/loss.h"
#include "runtime/kernels/pool.h"
#include "runtime/kernels/update.h"
#include "runtime/tensor/step_state.h"
#include "tests/support/oracle.h"

namespace rondo::test {

// Memory of a tensor between two zones of known bytes, which check() finds unchanged.
class Guarded {
 public:
  explicit Guarded(const TensorDesc& desc)
      : bytes_(static_cast<size_t>(desc.bytes())), block_(bytes_ + 2 * kZone + 64, kMark) {
    auto address = reinterpret_cast<uintptr_t>(block_.data()) + kZone;
    start_ = block_.data() + kZone + ((64 - address % 64) % 64);
    tensor_ = {desc, start_};
  }
  const Tensor& tensor() const { return tensor_; }
  void check(const char* what) const {
    for (const auto* p = block_.data(); p != start_; ++p) ASSERT_EQ(*p, kMark) << what << ": written before";
    for (const auto* p = start_ + bytes_; p != block_.data() + block_.size(); ++p) {
      ASSERT_EQ(*p, kMark) << what << ": written behind";
    }
  }

 private:
  static constexpr size_t kZone = 128;
  static constexpr unsigned char kMark = 0xA5;
  size_t bytes_;
  std::vector<unsigned char> block_;
  unsigned char* start_;
  Tensor tensor_;
};

class KernelTest : public ::testing::Test {
 protected:
  explicit KernelTest(int threads = 1)
      : device(make_cpu_device(threads)), stream(device->make_stream()), backend(make_cpu_backend(*device)) {}

  Execution on(int64_t scratch_bytes) {
    scratch.resize(static_cast<size_t>(scratch_bytes) + 64);
    auto address = reinterpret_cast<uintptr_t>(scratch.data());
    return {*stream, scratch.data() + (64 - address % 64) % 64, &state};
  }
  Execution on(const Kernel& kernel) { return on(kernel.scratch_bytes()); }

  void reorder(const Tensor& from, const Tensor& to) {
    const auto kernel = backend->reorder(from.desc, to.desc);
    kernel->run(on(*kernel), from, to);
  }
  static TensorDesc plain(const Shape& shape) { return {shape, DType::kF32, {}}; }

  // An operand that holds `values` (or a fill that must be overwritten) in the layout of `desc`.
  Guarded* operand(const TensorDesc& desc, const Array& values) {
    Guarded canonical(plain(desc.shape));
    EXPECT_EQ(desc.shape.elements(), values.size());
    for (int64_t i = 0; i < values.size(); ++i)
      canonical.tensor().as<float>()[i] = static_cast<float>(values[i]);
    operands.push_back(std::make_unique<Guarded>(desc));
    reorder(canonical.tensor(), operands.back()->tensor());
    return operands.back().get();
  }
  Guarded* result(const TensorDesc& desc) {
    Array garbage(desc.shape);
    for (double& v : garbage.values) v = 777.0;
    return operand(desc, garbage);
  }
  Array array(const Guarded* from) {
    const Tensor& tensor = from->tensor();
    Guarded canonical(plain(tensor.desc.shape));
    reorder(tensor, canonical.tensor());
    Array values(tensor.desc.shape);
    for (int64_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(canonical.tensor().as<float>()[i]);
    return values;
  }
  // Sum of |padding|: everything in memory less the elements.
  double padding_mass(const Guarded* from) {
    double mass = 0.0;
    for (const float v : from->tensor().memory<float>()) mass += std::fabs(static_cast<double>(v));
    for (const double v : array(from).values) mass -= std::fabs(v);
    return std::fabs(mass);
  }
  void check_guards() {
    for (const auto& operand : operands) operand->check(operand->tensor().desc.shape.text().c_str());
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<KernelBackend> backend;
  StepState state{.seed = 7, .learning_rate = 1e-3f, .inverse_batch = 0.25f};
  std::vector<std::unique_ptr<Guarded>> operands;
  std::vector<unsigned char> scratch;
};

}  // namespace rondo::test
