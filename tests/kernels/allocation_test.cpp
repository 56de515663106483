// Executing kernels allocates nothing by Rondo's own code.
#include <filesystem>

#include "tests/kernels/fixture.h"
#include "tests/support/count_allocations.h"

namespace rondo::test {
namespace {

class AllocationTest : public KernelTest {
 protected:
  Tensor zeros(const TensorDesc& desc) { return result(desc)->tensor(); }
  // Runs `step` twice to warm up, then counts.
  template <class Step>
  int64_t allocations(const Step& step) {
    step();
    step();
    const int64_t before = allocations_of_own_code();
    step();
    step();
    return allocations_of_own_code() - before;
  }
};

TEST_F(AllocationTest, TheCounterSeesOurAllocations) {
  EXPECT_GE(allocations([] { delete new std::vector<int>(10); }), 2);
}

TEST_F(AllocationTest, KernelsAllocateNothingWhenExecuted) {
  const auto conv = backend->conv2d({.input = plain({4, 9, 9, 1}), .filters = 16, .kernel_size = {3, 3}});
  const auto pool = backend->pool2d({.input = conv->output(), .pool_size = {2, 2}, .strides = {1, 1}});
  const auto norm = backend->batch_norm({.input = pool->output()});
  const auto dropout = backend->dropout({.desc = norm->output()});
  const auto dense_kernel = backend->dense({.input = dropout->desc(), .units = 10});
  const auto activation_kernel = backend->activation(Activation::kTanh, dense_kernel->output());
  const auto softmax_kernel = backend->softmax(dense_kernel->output());
  const auto loss_kernel = backend->loss({.prediction = dense_kernel->output(), .from_logits = true});
  const auto metric_kernel = backend->metric({.prediction = dense_kernel->output()});
  const auto update = backend->update({AdamUpdate{}});
  const auto squares = backend->square_sum();
  const auto to_canonical = backend->reorder(conv->output(), plain(conv->output().shape));

  const Tensor x = zeros(conv->input()), w = zeros(conv->kernel()), b = zeros(conv->bias()),
               y = zeros(conv->output());
  const Tensor p = zeros(pool->output()), q = zeros(norm->output()), wd = zeros(dense_kernel->kernel()),
               bd = zeros(dense_kernel->bias()), z = zeros(dense_kernel->output()),
               moved = zeros(plain(y.desc.shape));
  const Shape channels{16};
  const BatchNormParameters parameters{zeros(plain(channels)), zeros(plain(channels)), zeros(plain(channels)),
                                       zeros(plain(channels))};
  const Tensor dz = zeros(dense_kernel->output()), dwd = zeros(dense_kernel->kernel()),
               dbd = zeros(dense_kernel->bias()), dq = zeros(norm->output()), dp = zeros(pool->output()),
               dy = zeros(conv->output()), dw = zeros(conv->kernel()), db = zeros(conv->bias()),
               dx = zeros(conv->input()), dgamma = zeros(plain(channels)), dbeta = zeros(plain(channels)),
               m = zeros(conv->kernel()), v = zeros(conv->kernel());
  int32_t labels[4] = {0, 1, 2, 3};
  double sum = 0.0;
  int64_t bytes = 0;
  for (const Kernel* kernel : std::initializer_list<const Kernel*>{
           conv.get(), pool.get(), norm.get(), dropout.get(), dense_kernel.get(), to_canonical.get()}) {
    bytes = std::max(bytes, kernel->scratch_bytes());
  }
  const Execution execution = on(bytes);
  const auto step = [&] {
    conv->forward(execution, x, w, b, y);
    to_canonical->run(execution, y, moved);
    pool->forward(execution, y, p);
    norm->forward(execution, p, parameters, q);
    dropout->forward(execution, q, q);
    dense_kernel->forward(execution, q, wd, bd, z);
    activation_kernel->forward(execution, z, z);
    softmax_kernel->forward(execution, z, z);
    loss_kernel->run(execution, z, {loss_kernel->label(), labels}, &sum, dz);
    metric_kernel->run(execution, z, {loss_kernel->label(), labels}, &sum);
    dense_kernel->backward_weights(execution, q, dz, dwd, dbd);
    dense_kernel->backward_input(execution, dz, wd, dq);
    dropout->backward(execution, dq, dq);
    norm->backward(execution, p, dq, parameters, dp, dgamma, dbeta);
    pool->backward(execution, dp, dy);
    conv->backward_weights(execution, x, dy, dw, db);
    conv->backward_input(execution, dy, w, dx);
    const int64_t count = static_cast<int64_t>(w.memory<float>().size());
    update->run(execution, {w.as<float>(), dw.as<float>(), {m.as<float>(), v.as<float>()}, count});
    squares->run(execution, dw.as<float>(), count, &sum);
  };
  EXPECT_EQ(allocations(step), 0);
  // A device of one thread starts no other.
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  EXPECT_EQ(std::distance(begin(tasks), end(tasks)), 1);
}

}  // namespace
}  // namespace rondo::test
