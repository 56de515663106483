// What only the host's backend has: threads, layouts of its own, and promises about the library's choices.
#include <gmock/gmock.h>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "tests/kernels/fixture.h"

namespace rondo::test {
namespace {

class HostKernelTest : public KernelTest {
 protected:
  TensorDesc blocked(const Shape& shape) {
    return backend->conv2d({.input = plain({shape[0], shape[1], shape[2], 8}), .filters = shape[3]})
        ->output();
  }
  Array drop(const DropoutSpec& spec, KernelBackend& with) {
    const auto kernel = with.dropout(spec);
    Array ones(spec.desc.shape);
    for (double& v : ones.values) v = 1.0;
    const auto *in = operand(kernel->desc(), ones), *out = result(kernel->desc());
    kernel->forward(on(*kernel), in->tensor(), out->tensor());
    const Array kept = array(out);
    check_guards();
    operands.clear();
    return kept;
  }
};

TEST_F(HostKernelTest, ConvolutionsHandOnBlockedLayouts) {
  EXPECT_FALSE(blocked({2, 5, 4, 8}).layout.canonical());
}

TEST_F(HostKernelTest, ReorderRefusesAnotherType) {
  EXPECT_THROW(backend->reorder(blocked({2, 5, 4, 8}), {{2, 5, 4, 8}, DType::kI32, {}}), InvalidArgument);
}

TEST_F(HostKernelTest, DropoutDoesNotDependOnLayoutOrThreads) {
  const auto two = make_cpu_device(2);
  const auto threaded = make_cpu_backend(*two);
  for (const int64_t channels : {1, 3, 6, 8, 17, 32}) {
    const Shape shape{5, 9, 8, channels};
    const Array canonical = drop({.desc = plain(shape), .rate = 0.4f}, *backend);
    EXPECT_EQ(drop({.desc = blocked(shape), .rate = 0.4f}, *backend).values, canonical.values) << channels;
    EXPECT_EQ(drop({.desc = blocked(shape), .rate = 0.4f}, *threaded).values, canonical.values) << channels;
    EXPECT_EQ(drop({.desc = plain(shape), .rate = 0.4f}, *threaded).values, canonical.values) << channels;
  }
}

TEST_F(HostKernelTest, ThreadsChangeNoBit) {
  constexpr int64_t kCount = 200003;
  const auto desc = plain({kCount});
  const auto two = make_cpu_device(2);
  const auto threaded = make_cpu_backend(*two);
  const Array x = random_array(desc.shape, 1), y = random_array(desc.shape, 2);
  std::vector<std::vector<double>> results[2];
  for (auto* with : {backend, threaded.get()}) {
    auto& found = results[with == backend ? 0 : 1];
    const auto *a = operand(desc, x), *b = operand(desc, y), *c = operand(desc, Array(desc.shape)),
               *d = operand(desc, Array(desc.shape));
    with->add(desc)->run(on(0), a->tensor(), b->tensor(), c->tensor());
    found.push_back(array(c).values);
    with->activation(Activation::kTanh, desc)->forward(on(0), a->tensor(), c->tensor());
    found.push_back(array(c).values);
    with->update({RmsPropUpdate{}})->run(on(0), {a->as<float>(), b->as<float>(), {d->as<float>()}, kCount});
    found.push_back(array(a).values);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(HostKernelTest, SquareSumDoesNotDependOnThreads) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{300007}}) {
    const auto *values = operand(plain({count}), random_array(Shape{count}, 3)), *one = number(),
               *three = number();
    backend->square_sum()->run(on(0), values->as<float>(), count, one->as<double>());
    const auto many = make_cpu_device(3);
    make_cpu_backend(*many)->square_sum()->run(on(0), values->as<float>(), count, three->as<double>());
    EXPECT_EQ(value(one), value(three));
  }
}

TEST_F(HostKernelTest, NoReferenceImplementationInTheZoo) {
  for (const int64_t batch : {1, 7, 64}) {
    const auto first =
        backend->conv2d({.input = plain({batch, 28, 28, 1}), .filters = 32, .kernel_size = {3, 3}});
    const auto second = backend->conv2d({.input = first->output(), .filters = 64, .kernel_size = {3, 3}});
    const auto pool = backend->pool2d({.input = second->output()});
    const auto dense_kernel = backend->dense({.input = pool->output(), .units = 128});
    for (const Kernel* kernel :
         std::initializer_list<const Kernel*>{first.get(), second.get(), pool.get(), dense_kernel.get()}) {
      EXPECT_THAT(kernel->implementation(), ::testing::Not(::testing::HasSubstr("ref")));
    }
  }
}

}  // namespace
}  // namespace rondo::test
