#include "models/program/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/error.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ProgramOptions parse(std::vector<const char*> words) {
  words.insert(words.begin(), "train");
  return parse_options(static_cast<int>(words.size()), words.data());
}

std::string refusal(std::vector<const char*> words) {
  try {
    parse(std::move(words));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(Options, Defaults) {
  const ProgramOptions options = parse({});
  EXPECT_EQ(options.action, Action::kTrain);
  EXPECT_EQ(options.model, "cnn");
  EXPECT_EQ(options.data, "fashion-mnist");
  EXPECT_EQ(options.epochs, 3);
  EXPECT_EQ(options.batch_size, 64);
  EXPECT_EQ(options.steps_per_epoch, 0);
  EXPECT_EQ(options.seed, 0U);
  EXPECT_EQ(options.validation_split, 0.0);
  ASSERT_TRUE(std::holds_alternative<Adam>(options.optimizer));
  EXPECT_EQ(std::get<Adam>(options.optimizer).learning_rate, 0.001);
  EXPECT_EQ(options.bucket_bytes, int64_t{25} << 20);
  EXPECT_EQ(options.binding.threads, 0);
  EXPECT_EQ(options.binding.device, DeviceChoice::kAuto);
  EXPECT_TRUE(options.log_csv.empty());
}

TEST(Options, GpuFlags) {
  EXPECT_FALSE(parse({}).binding.oversubscribe_gpus);
  EXPECT_EQ(parse({}).precision, Precision::kF32);
  const ProgramOptions options = parse({"--oversubscribe-gpus", "--precision", "tf32", "--gpus", "0,1"});
  EXPECT_TRUE(options.binding.oversubscribe_gpus);
  EXPECT_EQ(options.precision, Precision::kTF32);
  EXPECT_EQ(parse({"--precision", "f16"}).precision, Precision::kF16);
  EXPECT_EQ(options.binding.gpus, "0,1");
}

TEST(Options, CollectivesFileIsReadOrWritten) {
  EXPECT_EQ(parse({"--collectives", "f"}).collectives, "f");
  EXPECT_EQ(parse({"--tune-collectives=g"}).tune_collectives, "g");
  EXPECT_EQ(parse({"--tune-collectives=g"}).action, Action::kTrain);
  EXPECT_THAT(refusal({"--collectives=f", "--tune-collectives=g"}), HasSubstr("--tune-collectives"));
}

TEST(Options, EveryValueArrives) {
  const ProgramOptions options = parse({"--model",
                                        "mlp",
                                        "--data=synthetic",
                                        "--epochs",
                                        "7",
                                        "--batch-size",
                                        "100",
                                        "--optimizer",
                                        "sgd",
                                        "--learning-rate",
                                        "0.5",
                                        "--momentum",
                                        "0.9",
                                        "--schedule",
                                        "step:10:0.5",
                                        "--seed",
                                        "3",
                                        "--steps-per-epoch",
                                        "4",
                                        "--validation-split",
                                        "0.25",
                                        "--device",
                                        "cpu",
                                        "--gpus",
                                        "0",
                                        "--threads",
                                        "2",
                                        "--bucket-mb",
                                        "0.5",
                                        "--log-jsonl",
                                        "a",
                                        "--log-csv",
                                        "b",
                                        "--progress",
                                        "none"});
  EXPECT_EQ(options.model, "mlp");
  EXPECT_EQ(options.data, "synthetic");
  EXPECT_EQ(options.epochs, 7);
  EXPECT_EQ(options.batch_size, 100);
  const SGD& sgd = std::get<SGD>(options.optimizer);
  EXPECT_EQ(sgd.learning_rate, 0.5);
  EXPECT_EQ(sgd.momentum, 0.9);
  EXPECT_EQ(std::get<StepSchedule>(sgd.schedule.rule).every, 10);
  EXPECT_EQ(options.seed, 3U);
  EXPECT_EQ(options.steps_per_epoch, 4);
  EXPECT_EQ(options.validation_split, 0.25);
  EXPECT_EQ(options.binding.device, DeviceChoice::kCpu);
  EXPECT_EQ(options.binding.gpus, "0");
  EXPECT_EQ(options.binding.threads, 2);
  EXPECT_EQ(options.bucket_bytes, int64_t{1} << 19);
  EXPECT_EQ(options.log_jsonl, "a");
  EXPECT_EQ(options.log_csv, "b");
  EXPECT_EQ(options.progress, ProgressMode::kNone);
}

TEST(Options, InsteadOfTraining) {
  EXPECT_EQ(parse({"--help"}).action, Action::kHelp);
  EXPECT_EQ(parse({"-h"}).action, Action::kHelp);
  EXPECT_EQ(parse({"--version"}).action, Action::kVersion);
  EXPECT_EQ(parse({"--check-build"}).action, Action::kCheckBuild);
  EXPECT_EQ(parse({"--summary", "--model", "lenet5"}).action, Action::kSummary);
}

TEST(Options, NumbersSayOptionValueAndRange) {
  for (const char* value : {"0", "-1", "many", "1.5", "", "12x", "99999999999999999999"}) {
    EXPECT_THAT(refusal({"--batch-size", value}),
                AllOf(HasSubstr("--batch-size is"), HasSubstr("at least 1")))
        << value;
  }
  EXPECT_THAT(refusal({"--epochs", "0"}), HasSubstr("--epochs"));
  EXPECT_THAT(refusal({"--steps-per-epoch", "-1"}), HasSubstr("at least 0"));
  EXPECT_THAT(refusal({"--seed", "-1"}), HasSubstr("--seed"));
  EXPECT_THAT(refusal({"--threads", "-2"}), HasSubstr("from 0 to 1024"));
  for (const char* value : {"0", "-0.1", "nan", "inf", "fast"}) {
    EXPECT_THAT(refusal({"--learning-rate", value}), HasSubstr("--learning-rate is")) << value;
  }
  EXPECT_THAT(refusal({"--validation-split", "1"}), HasSubstr("--validation-split"));
  EXPECT_THAT(refusal({"--momentum", "1", "--optimizer", "sgd"}), HasSubstr("--momentum"));
  EXPECT_THAT(refusal({"--momentum", "0.9"}), HasSubstr("sgd"));
  EXPECT_THAT(refusal({"--bucket-mb", "0"}), HasSubstr("--bucket-mb"));
}

TEST(Options, NamesListWhatThereIs) {
  EXPECT_THAT(refusal({"--model", "resnet"}), AllOf(HasSubstr("\"resnet\""), HasSubstr("mlp, cnn, lenet5")));
  EXPECT_THAT(refusal({"--optimizer", "lion"}), AllOf(HasSubstr("lion"), HasSubstr("rmsprop")));
  EXPECT_THAT(refusal({"--schedule", "sawtooth"}), HasSubstr("sawtooth"));
  EXPECT_THAT(refusal({"--device", "tpu"}), HasSubstr("auto, cpu or cuda"));
  EXPECT_THAT(refusal({"--progress", "dots"}), HasSubstr("lines"));
  EXPECT_THAT(refusal({"--gpus", "0,0"}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"--log-csv", "x", "--log-jsonl", "x"}), HasSubstr("a file of its own"));
}

TEST(Options, UnknownOnesPointToHelp) {
  EXPECT_THAT(refusal({"--epoch", "3"}), AllOf(HasSubstr("epoch"), HasSubstr("--help")));
  EXPECT_THAT(refusal({"cnn"}), AllOf(HasSubstr("\"cnn\""), HasSubstr("--help")));
  EXPECT_THAT(refusal({"--epochs"}), AllOf(HasSubstr("epochs"), HasSubstr("--help")));
}

TEST(Options, FactsHoldEveryValue) {
  const auto value_of = [](const ProgramOptions& options, const std::string& name) {
    for (const Fact& fact : options.facts) {
      if (fact.name == name) return fact.value;
    }
    return std::string("absent");
  };
  EXPECT_EQ(value_of(parse({}), "--batch-size"), "64");
  EXPECT_EQ(value_of(parse({"--batch-size", "32"}), "--batch-size"), "32");
  for (const char* name : {"--model", "--data", "--epochs", "--optimizer", "--learning-rate", "--momentum",
                           "--schedule", "--seed", "--steps-per-epoch", "--validation-split", "--device",
                           "--gpus", "--threads", "--bucket-mb", "--log-jsonl", "--log-csv", "--progress"}) {
    EXPECT_NE(value_of(parse({}), name), "absent") << name;
  }
}

TEST(Options, HelpShowsGroupsAndDefaults) {
  const std::string help = help_text();
  for (const char* text : {"Model and data", "Training", "Devices", "Output", "Information", "--batch-size",
                           "(default: 64)", "(default: cnn)", "--log-jsonl FILE", "--gpus", "--summary"}) {
    EXPECT_THAT(help, HasSubstr(text));
  }
}

}  // namespace
}  // namespace rondo
