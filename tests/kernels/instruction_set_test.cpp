// A program of its own: the instruction set can be limited only before the first kernel is made.
#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/conv.h"
#include "runtime/kernels/cpu/cpu_backend.h"

namespace rondo::test {
namespace {

TEST(InstructionSet, CanBeLimitedOnlyBeforeTheFirstKernel) {
  const int level = cpu_instruction_set();
  EXPECT_FALSE(onednn_version().empty());
  EXPECT_FALSE(cpu_instruction_set_name(level).empty());
  EXPECT_EQ(cpu_instruction_set_name(-1), "generic");
  if (level < 1) GTEST_SKIP() << "nothing below the lowest instruction set";
  limit_cpu_instruction_set(level);  // no change
  EXPECT_EQ(cpu_instruction_set(), level);
  limit_cpu_instruction_set(level - 1);

  const auto device = make_cpu_device(1);
  const auto backend = make_cpu_backend(*device);
  EXPECT_NE(backend->name().find(cpu_instruction_set_name(level - 1)), std::string::npos) << backend->name();
  backend->conv2d({.input = {Shape{2, 8, 8, 8}, DType::kF32, {}}, .filters = 8, .kernel_size = {3, 3}});
  limit_cpu_instruction_set(level - 1);  // in force already
  EXPECT_EQ(effective_cpu_instruction_set(), level - 1);
  if (level < 2) return;
  EXPECT_THROW(limit_cpu_instruction_set(level - 2), InternalError);
  EXPECT_EQ(effective_cpu_instruction_set(), level - 1);
}

}  // namespace
}  // namespace rondo::test
