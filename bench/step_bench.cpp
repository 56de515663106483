// Time of one training step of the zoo's models, phase by phase: the counterpart of
// bench/peers/torch_step.py.
#include <benchmark/benchmark.h>
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <exception>
#include <string>
#include <string_view>

#include "bench/step_report.h"
#include "bench/training_step.h"
#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"

namespace {

using namespace rondo;
using namespace rondo::bench;

struct Options {
  StepOptions step;
  double seconds = 5.0;
  double warmup = 1.0;
  std::string json;
  bool describe = false;
  bool profile = false;
};

cxxopts::Options make_parser() {
  cxxopts::Options parser("step_bench", "Time of one training step on one rank, by phase.");
  parser.add_options()  //
      ("model", "a model of the zoo: mlp, cnn, lenet5",
       cxxopts::value<std::string>()->default_value("cnn"))                                           //
      ("batch", "images of a step", cxxopts::value<int64_t>()->default_value("64"))                   //
      ("threads", "of the kernels", cxxopts::value<int>()->default_value("1"))                        //
      ("device", "cpu, or cuda: the first GPU", cxxopts::value<std::string>()->default_value("cpu"))  //
      ("optimizer", "sgd, rmsprop, adam", cxxopts::value<std::string>()->default_value("adam"))       //
      ("seconds", "measured time", cxxopts::value<double>()->default_value("5"))                      //
      ("warmup", "seconds before it", cxxopts::value<double>()->default_value("1"))                   //
      ("clock", "wall, or cpu: CPU time of one thread, for a busy machine",
       cxxopts::value<std::string>()->default_value("wall"))(
          "json", "write the rows to FILE", cxxopts::value<std::string>()->default_value(""), "FILE")  //
      ("describe", "print the plan, with implementations and layouts, and exit")                       //
      ("profile", "time each step of the plan as well")                                                //
      ("h,help", "print this and exit");
  return parser;
}

Options read_options(const cxxopts::ParseResult& given) {
  Options options;
  options.step = {.model = given["model"].as<std::string>(),
                  .batch = given["batch"].as<int64_t>(),
                  .threads = given["threads"].as<int>(),
                  .optimizer = given["optimizer"].as<std::string>(),
                  .device = parse_device(given["device"].as<std::string>())};
  const std::string clock = given["clock"].as<std::string>();
  require(clock == "wall" || clock == "cpu", "--clock is wall or cpu, got \"{}\"", clock);
  options.step.clock = clock == "cpu" ? ClockKind::kCpu : ClockKind::kWall;
  options.seconds = given["seconds"].as<double>();
  options.warmup = given["warmup"].as<double>();
  options.json = given["json"].as<std::string>();
  options.describe = given.count("describe") > 0;
  options.profile = given.count("profile") > 0;
  require(options.seconds > 0.0, "--seconds must be positive, got {}", options.seconds);
  return options;
}

// Steps that fit into the measured time, after the first ones, which build what is built once.
int64_t warm_up(TrainingStep& step, const Options& options) {
  for (int i = 0; i < 5; ++i) step.run();
  const Stopwatch watch;
  int64_t steps = 0;
  do {
    step.run();
    ++steps;
  } while (watch.seconds() < options.warmup);
  const double each = watch.seconds() / static_cast<double>(steps);
  return std::max<int64_t>(5, static_cast<int64_t>(options.seconds / each));
}

rusage resources() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage;
}

void measure(const Options& options) {
  TrainingStep step(options.step);
  if (options.describe) {
    fmt::print("{}", step.describe());
    return;
  }
  const int64_t steps = warm_up(step, options);
  Readings readings;
  readings.reserve(static_cast<size_t>(steps));
  const auto body = [&](benchmark::State& state) {
    for (auto _ : state) {
      readings.push_back(step.run());
      state.SetIterationTime(readings.back()[kStep]);
    }
    for (int phase = 0; phase < kStep; ++phase) {
      state.counters[fmt::format("{}_ms", kPhaseNames[static_cast<size_t>(phase)])] =
          median_ms(readings, static_cast<Phase>(phase));
    }
    state.SetItemsProcessed(state.iterations() * options.step.batch);
  };
  benchmark::RegisterBenchmark((options.step.model + "/step").c_str(), body)
      ->UseManualTime()
      ->Iterations(steps)
      ->Unit(benchmark::kMillisecond);
  const rusage before = resources();
  benchmark::RunSpecifiedBenchmarks();
  const rusage after = resources();

  fmt::print("{} steps, {:.0f} page faults a step, peak {:.0f} MB\n", readings.size(),
             static_cast<double>(after.ru_minflt - before.ru_minflt) / static_cast<double>(readings.size()),
             static_cast<double>(after.ru_maxrss) / 1024.0);
  print_readings(options.step.model, options.step.batch, readings);
  if (options.profile) {
    // Steps of their own: the clocks cost time, and on a GPU much of it.
    const int64_t profiled = std::min<int64_t>(steps, 100);
    step.profile(static_cast<size_t>(profiled));
    for (int64_t i = 0; i < profiled; ++i) step.run();
    print_profile(step.profiles(), readings);
  }
  if (!options.json.empty()) write_json(options.json, options.step.model, options.step.batch, readings);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    // Takes its own --benchmark_... options away; asked for help it would print only those.
    const auto wants_help = [](std::string_view word) { return word == "-h" || word == "--help"; };
    if (std::none_of(argv + 1, argv + argc, wants_help)) benchmark::Initialize(&argc, argv);
    cxxopts::Options parser = make_parser();
    const cxxopts::ParseResult given = parser.parse(argc, argv);
    if (given.count("help") > 0) {
      fmt::print("{}", parser.help());
      return 0;
    }
    require(given.unmatched().empty(), "unexpected word \"{}\"",
            given.unmatched().empty() ? "" : given.unmatched().front());
    measure(read_options(given));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "step_bench: error: {}\n", error.what());
    return 1;
  }
}
