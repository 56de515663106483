// What a program finds out about GPUs before it loads anything of CUDA. The driver is fake_driver.c.
#include "runtime/launch/gpu_loader.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "runtime/base/error.h"
#include "runtime/launch/binding.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

class GpuLoader : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("RONDO_SIMULATED_GPUS");
    if (gpu_libraries_of_this_build() == "no CUDA") GTEST_SKIP() << "this build has no CUDA backend";
  }
  void TearDown() override {
    for (const char* name : {"FAKE_DRIVER_INIT", "FAKE_DRIVER_VERSION", "FAKE_DRIVER_COUNT"}) unsetenv(name);
  }
  static std::string reason(const char* variable, const char* value) {
    setenv(variable, value, 1);
    const FoundGpus found = find_gpus();
    EXPECT_EQ(found.module, nullptr);
    EXPECT_EQ(dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD), nullptr) << "CUDA was loaded for nothing";
    return found.reason;
  }
};

TEST_F(GpuLoader, AnOldDriverIsToldWithBothVersions) {
  EXPECT_THAT(reason("FAKE_DRIVER_VERSION", "11080"), AllOf(HasSubstr("CUDA 11.8"), HasSubstr("update")));
  EXPECT_THAT(gpu_parts_of_this_build(), HasSubstr("supports CUDA 11.8, but this build needs"));
}

TEST_F(GpuLoader, ADriverWithoutGpusIsTold) {
  EXPECT_THAT(reason("FAKE_DRIVER_INIT", "100"), HasSubstr("sees no GPU"));
  EXPECT_THAT(reason("FAKE_DRIVER_INIT", "803"), HasSubstr("different versions"));
  EXPECT_THAT(reason("FAKE_DRIVER_INIT", "999"), HasSubstr("error 999"));
  TearDown();
  EXPECT_THAT(reason("FAKE_DRIVER_COUNT", "0"), HasSubstr("sees no GPU"));
}

TEST_F(GpuLoader, AutoTakesTheHostAndCudaSaysWhyNot) {
  setenv("FAKE_DRIVER_INIT", "100", 1);
  const CoreSet one{{0}};
  const Binding host = bind_device({}, one, std::span(&one, 1));
  EXPECT_EQ(host.gpus, nullptr);
  EXPECT_THAT(host.no_gpu, HasSubstr("sees no GPU"));
  try {
    bind_device({.device = DeviceChoice::kCuda}, one, std::span(&one, 1));
    FAIL() << "bound to a GPU that is not there";
  } catch (const Unavailable& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("--device cuda"), HasSubstr("sees no GPU")));
  }
}

// The module itself is loaded, and its exception arrives as what it is.
TEST_F(GpuLoader, TheModulesOwnErrorsArrive) {
  const FoundGpus found = find_gpus();
  EXPECT_EQ(found.module, nullptr);
  EXPECT_THAT(found.reason, AnyOf(HasSubstr("cuda"), HasSubstr("not beside the program")));
}

TEST(ChooseGpu, ByPlaceAmongThoseAskedFor) {
  EXPECT_EQ(choose_gpus({}, {.local_rank = 1, .local_size = 2}, 4), std::vector{1});
  EXPECT_EQ(choose_gpus({.gpus = "3,1"}, {.local_rank = 0, .local_size = 2}, 4), std::vector{3});
  EXPECT_EQ(choose_gpus({.gpus = "3,1"}, {.local_rank = 1, .local_size = 2}, 4), std::vector{1});
  EXPECT_EQ(choose_gpus({}, {.local_rank = 3, .local_size = 4}, 1),
            std::vector{0});  // each rank sees only its own
  EXPECT_EQ(choose_gpus({.oversubscribe_gpus = true}, {.local_rank = 3, .local_size = 4}, 2), std::vector{1});
  EXPECT_THROW(choose_gpus({}, {.local_rank = 0, .local_size = 3}, 2), InvalidArgument);
  EXPECT_THROW(choose_gpus({.gpus = "1"}, {.local_rank = 0, .local_size = 2}, 4), InvalidArgument);
  EXPECT_THROW(choose_gpus({.gpus = "0"}, {}, 4), InvalidArgument);
  EXPECT_THROW(choose_gpus({.gpus = "0,4"}, {.local_rank = 0, .local_size = 2}, 4), InvalidArgument);
}

}  // namespace
}  // namespace rondo
