// What the kernel tests share: a backend, guarded operands in its device's memory, and the way between
// canonical float64 arrays and tensors in any layout.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "runtime/kernels/batch_norm.h"
#include "runtime/kernels/conv.h"
#include "runtime/kernels/dense.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/loss.h"
#include "runtime/kernels/pool.h"
#include "runtime/kernels/step.h"
#include "runtime/kernels/update.h"
#include "runtime/tensor/step_state.h"
#include "tests/kernels/backend_under_test.h"
#include "tests/support/oracle.h"

namespace rondo::test {

// Device memory of a tensor between two zones of known bytes, which check() finds unchanged.
class Guarded {
 public:
  Guarded(Stream& stream, const TensorDesc& desc)
      : stream_(stream), bytes_(desc.bytes()), block_(stream.device().allocate(bytes_ + 2 * kZone)) {
    const std::vector<unsigned char> marks(static_cast<size_t>(block_.bytes()), kMark);
    stream_.copy(block_.data(), marks.data(), block_.bytes());
    stream_.synchronize();
    tensor_ = {desc, block_.as<char>() + kZone};
  }
  const Tensor& tensor() const { return tensor_; }
  template <class T>
  T* as() const {
    return tensor_.as<T>();
  }

  void write(const void* from) const {
    stream_.copy(tensor_.data, from, bytes_);
    stream_.synchronize();
  }
  // All memory of the tensor as T, in the layout's order, padding included.
  template <class T>
  std::vector<T> read() const {
    std::vector<T> values(static_cast<size_t>(bytes_) / sizeof(T));
    stream_.copy(values.data(), tensor_.data, bytes_);
    stream_.synchronize();
    return values;
  }
  void check(const char* what) const {
    std::vector<unsigned char> all(static_cast<size_t>(block_.bytes()));
    stream_.copy(all.data(), block_.data(), block_.bytes());
    stream_.synchronize();
    const auto marked = [](unsigned char byte) { return byte == kMark; };
    ASSERT_TRUE(std::all_of(all.begin(), all.begin() + kZone, marked)) << what << ": written before";
    ASSERT_TRUE(std::all_of(all.end() - kZone, all.end(), marked)) << what << ": written behind";
  }

 private:
  static constexpr int64_t kZone = 256;
  static constexpr unsigned char kMark = 0xA5;
  Stream& stream_;
  int64_t bytes_;
  Buffer block_;
  Tensor tensor_;
};

class KernelTest : public ::testing::Test {
 protected:
  explicit KernelTest(int threads = 1) : under_test(make_backend_under_test(threads)) {
    device = under_test.device.get();
    backend = under_test.backend.get();
    stream = device->make_stream();
    state_memory = device->allocate(sizeof(StepState));
  }
  ~KernelTest() override { stream->synchronize(); }  // before the memory that kernels use goes

  bool on_host() const { return device->host_accessible(); }

  Execution on(int64_t scratch_bytes) {
    if (scratch.bytes() < scratch_bytes || !scratch) {
      stream->synchronize();
      scratch = device->allocate(scratch_bytes + 64);
    }
    stream->copy(state_memory.data(), &state, sizeof(state));
    stream->synchronize();
    return {*stream, scratch.data(), state_memory.as<StepState>()};
  }
  Execution on(const Kernel& kernel) { return on(kernel.scratch_bytes()); }

  void reorder(const Tensor& from, const Tensor& to) {
    const auto kernel = backend->reorder(from.desc, to.desc);
    kernel->run(on(*kernel), from, to);
    stream->synchronize();
  }
  static TensorDesc plain(const Shape& shape) { return {shape, DType::kF32, {}}; }

  // An operand that holds `values` (or a fill that must be overwritten) in the layout of `desc`.
  Guarded* operand(const TensorDesc& desc, const Array& values) {
    EXPECT_EQ(desc.shape.elements(), values.size());
    const std::vector<float> floats(values.values.begin(), values.values.end());
    operands.push_back(std::make_unique<Guarded>(*stream, desc));
    if (desc.layout.canonical()) {
      operands.back()->write(floats.data());
    } else {
      const Guarded canonical(*stream, plain(desc.shape));
      canonical.write(floats.data());
      reorder(canonical.tensor(), operands.back()->tensor());
    }
    return operands.back().get();
  }
  Guarded* result(const TensorDesc& desc) {
    Array garbage(desc.shape);
    for (double& v : garbage.values) v = 777.0;
    return operand(desc, garbage);
  }
  // An operand of any type, from host memory in its order.
  Guarded* raw(const TensorDesc& desc, const void* values) {
    operands.push_back(std::make_unique<Guarded>(*stream, desc));
    operands.back()->write(values);
    return operands.back().get();
  }
  // A float64 in device memory, where sums go.
  Guarded* number(double value = -1.0) { return raw({Shape{1}, DType::kF64, {}}, &value); }
  static double value(const Guarded* of) { return of->read<double>()[0]; }

  Array array(const Guarded* from) {
    const Tensor& tensor = from->tensor();
    const Guarded* there = from;
    std::unique_ptr<Guarded> canonical;
    if (!tensor.desc.layout.canonical()) {
      canonical = std::make_unique<Guarded>(*stream, plain(tensor.desc.shape));
      reorder(tensor, canonical->tensor());
      there = canonical.get();
    }
    Array values(tensor.desc.shape);
    const std::vector<float> floats = there->read<float>();
    values.values.assign(floats.begin(), floats.end());
    return values;
  }
  // Sum of |padding|: everything in memory less the elements.
  double padding_mass(const Guarded* from) {
    double mass = 0.0;
    for (const float v : from->read<float>()) mass += std::fabs(static_cast<double>(v));
    for (const double v : array(from).values) mass -= std::fabs(v);
    return std::fabs(mass);
  }
  void check_guards() {
    for (const auto& operand : operands) operand->check(operand->tensor().desc.shape.text().c_str());
  }

  BackendUnderTest under_test;
  Device* device;
  KernelBackend* backend;
  std::unique_ptr<Stream> stream;
  StepState state{.seed = 7, .learning_rate = 1e-3f, .inverse_batch = 0.25f};
  Buffer state_memory;
  Buffer scratch;
  std::vector<std::unique_ptr<Guarded>> operands;
};

}  // namespace rondo::test
