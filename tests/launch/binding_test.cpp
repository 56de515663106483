#include "runtime/launch/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "runtime/kernels/backend.h"
#include "runtime/launch/cores.h"
#include "runtime/launch/gpus.h"

namespace rondo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <class E, class F>
std::string message_of(F action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing of the expected type was thrown";
  return {};
}

TEST(Gpus, CountsAndLists) {
  EXPECT_FALSE(parse_gpus("").given);
  EXPECT_EQ(parse_gpus("4").count, 4);
  EXPECT_THAT(parse_gpus("4").ids, IsEmpty());
  EXPECT_EQ(parse_gpus("0").count, 0);
  EXPECT_THAT(parse_gpus("0,2,3").ids, ElementsAre(0, 2, 3));
  EXPECT_EQ(parse_gpus("0,2,3").count, 3);
  EXPECT_THAT(parse_gpus("1,").ids, ElementsAre(1));
}

TEST(Gpus, WrongTextSaysWhatIsWrong) {
  for (const char* text : {"two", "-1", "1.5", "0,x", "0,-1", ",", "0,,1", " 1", "99999999999"}) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { parse_gpus(text); }), HasSubstr("--gpus")) << text;
  }
  EXPECT_THAT(message_of<InvalidArgument>([] { parse_gpus("0,1,0"); }), HasSubstr("GPU 0 twice"));
}

TEST(Gpus, NoMoreThanThereAre) {
  EXPECT_NO_THROW(check_gpus(parse_gpus(""), 0));
  EXPECT_NO_THROW(check_gpus(parse_gpus("0"), 0));
  EXPECT_NO_THROW(check_gpus(parse_gpus("2"), 2));
  EXPECT_NO_THROW(check_gpus(parse_gpus("1,0"), 2));
  EXPECT_THAT(message_of<InvalidArgument>([] { check_gpus(parse_gpus("3"), 2); }),
              HasSubstr("this host has 2"));
  EXPECT_THAT(message_of<InvalidArgument>([] { check_gpus(parse_gpus("0,2"), 2); }), HasSubstr("GPU 2"));
}

TEST(Cores, ShareOfDisjointAndSharedSets) {
  const CoreSet all{{0, 1, 2, 3}};
  const CoreSet low{{0, 1}};
  const CoreSet high{{2, 3}};
  EXPECT_EQ(share_of_cores(all, std::vector{all}), 4);
  EXPECT_EQ(share_of_cores(low, std::vector{low, high}), 2);
  EXPECT_EQ(share_of_cores(all, std::vector{all, all}), 2);
  EXPECT_EQ(share_of_cores(all, std::vector{all, all, all}), 1);
  EXPECT_EQ(share_of_cores(low, std::vector{low, low, low, low}), 1);  // more ranks than cores
  EXPECT_EQ(share_of_cores(all, std::vector{all, low}), 3);            // two cores alone, two halves
  const CoreSet three{{0, 1, 2}};
  EXPECT_EQ(share_of_cores(three, std::vector{three, three, three}), 1);  // three thirds make one
}

TEST(Cores, TextAndBack) {
  for (const char* text : {"0", "0-3", "0-3,8", "1,3,5", "0-1,4-5,7"}) {
    EXPECT_EQ(to_text(parse_cores(text)), text);
  }
  for (const char* text : {"x", "0-", "3-1", "0,", "0-3;8", "-1"}) {
    EXPECT_THROW(parse_cores(text), InvalidArgument) << text;
  }
}

TEST(Cores, AffinityIsNeverEmpty) {
  EXPECT_GE(affinity_cores().cores.size(), 1U);
}

TEST(Binding, DeviceNames) {
  EXPECT_EQ(parse_device("auto"), DeviceChoice::kAuto);
  EXPECT_EQ(parse_device("cpu"), DeviceChoice::kCpu);
  EXPECT_EQ(parse_device("cuda"), DeviceChoice::kCuda);
  EXPECT_THAT(message_of<InvalidArgument>([] { parse_device("gpu"); }), HasSubstr("auto, cpu or cuda"));
}

TEST(Binding, ThreadsFromOptionOrShare) {
  const CoreSet four{{0, 1, 2, 3}};
  EXPECT_EQ(bind_device({}, four, std::vector{four, four}).device->threads(), 2);
  EXPECT_EQ(bind_device({.threads = 3}, four, std::vector{four, four}).device->threads(), 3);
  EXPECT_THROW(bind_device({.threads = -1}, four, std::vector{four}), InvalidArgument);
  const Binding bound = bind_device({}, four, std::vector{four});
  EXPECT_EQ(&bound.backend->device(), bound.device.get());
}

TEST(Binding, TheDevicesOfARankDivideItsThreads) {
  const CoreSet own{{0, 1}};
  const auto threads = [&](int all, int devices) {
    const Binding binding = bind_device(
        {.device = DeviceChoice::kCpu, .threads = all, .devices_per_rank = devices}, own, std::span(&own, 1));
    std::vector<int> found{binding.device->threads()};
    for (const FurtherDevice& further : binding.further) {
      EXPECT_EQ(&further.backend->device(), further.device.get());
      found.push_back(further.device->threads());
    }
    return found;
  };
  EXPECT_THAT(threads(5, 1), ElementsAre(5));
  EXPECT_THAT(threads(5, 2), ElementsAre(3, 2));
  EXPECT_THAT(threads(0, 2), ElementsAre(1, 1));
  EXPECT_THAT(threads(1, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(message_of<InvalidArgument>([&] { threads(1, 0); }), HasSubstr("devices_per_rank is 0"));
}

TEST(Binding, WhatThisBuildHasNot) {
  const CoreSet one{{0}};
  EXPECT_THAT(
      message_of<Unavailable>([&] { bind_device({.device = DeviceChoice::kCuda}, one, std::vector{one}); }),
      HasSubstr("--device cuda: "));
  EXPECT_THAT(message_of<InvalidArgument>([&] { bind_device({.gpus = "1"}, one, std::vector{one}); }),
              HasSubstr("--gpus asks for 1 GPU"));
}

}  // namespace
}  // namespace rondo
