// All-reduce in place (f32, sum) against MPI, Gloo and memcpy, in one run under mpirun. COLLECTIVES.md in
// this folder explains the columns.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cxxopts.hpp>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "bench/allreduce_contestants.h"
#include "bench/allreduce_report.h"
#include "runtime/base/error.h"
#include "runtime/base/stopwatch.h"
#include "runtime/comm/mpi/launcher.h"
#include "runtime/comm/mpi/mpi_check.h"
#include "runtime/comm/mpi/session.h"

namespace {

using namespace rondo;
using namespace rondo::bench;

struct Options {
  int64_t min = 4;
  int64_t max = 256 << 20;
  int factor = 4;
  int repeats = 11;
  double percentile = 50.0;
  std::vector<std::string> impls;
  std::string json;
  BindOptions bind;
};

cxxopts::Options make_parser() {
  cxxopts::Options parser(
      "allreduce_bench", "All-reduce in place (f32, sum) beside other implementations. Run it under mpirun.");
  parser.add_options()  //
      ("min", "smallest message in bytes; K, M, G are powers of 1024",
       cxxopts::value<std::string>()->default_value("4"))                                    //
      ("max", "largest message", cxxopts::value<std::string>()->default_value("256M"))       //
      ("factor", "from one message to the next", cxxopts::value<int>()->default_value("4"))  //
      ("repeats", "rounds in which each implementation has one turn; rows are medians of them",
       cxxopts::value<int>()->default_value("11"))  //
      ("percentile", "of the rounds, where a busy machine leaves no use for the median",
       cxxopts::value<double>()->default_value("50"))  //
      ("impls",
       fmt::format("which, comma-separated; this build has {}",
                   fmt::join(contestant_names(DeviceChoice::kCpu), ",")),
       cxxopts::value<std::vector<std::string>>()->default_value(""), "LIST")  //
      ("device", "whose memory is summed: cpu, or cuda for a GPU of each rank",
       cxxopts::value<std::string>()->default_value("cpu"))                                         //
      ("oversubscribe-gpus", "ranks may share GPUs; sums then go through the hosts' memory")        //
      ("json", "write the rows to FILE", cxxopts::value<std::string>()->default_value(""), "FILE")  //
      ("h,help", "print this and exit");
  return parser;
}

Options read_options(const cxxopts::ParseResult& given) {
  Options options;
  options.min = parse_size("min", given["min"].as<std::string>());
  options.max = parse_size("max", given["max"].as<std::string>());
  options.factor = given["factor"].as<int>();
  options.repeats = given["repeats"].as<int>();
  options.percentile = given["percentile"].as<double>();
  options.json = given["json"].as<std::string>();
  options.impls = given["impls"].as<std::vector<std::string>>();
  std::erase(options.impls, "");
  options.bind.device = parse_device(given["device"].as<std::string>());
  require(options.bind.device != DeviceChoice::kAuto, "--device takes cpu or cuda");
  options.bind.oversubscribe_gpus = given.count("oversubscribe-gpus") > 0;
  if (options.impls.empty()) options.impls = contestant_names(options.bind.device);
  require(options.min <= options.max, "--min {} is larger than --max {}", options.min, options.max);
  require(options.factor >= 2, "--factor must be at least 2, got {}", options.factor);
  require(options.repeats >= 1, "--repeats must be at least 1, got {}", options.repeats);
  require(options.percentile >= 0.0 && options.percentile <= 100.0, "--percentile is 0 to 100, got {}",
          options.percentile);
  require(static_cast<bool>(launched_by()), "start it under a launcher: mpirun -np 2 allreduce_bench");
  return options;
}

// The ranks of the benchmark among themselves. None of it is measured.
class Referee {
 public:
  explicit Referee(MpiSession& session) : session_(session) {
    const std::lock_guard lock(session.lock());
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    comm_ = MpiCommHandle(comm);
  }
  void barrier() {
    const std::lock_guard lock(session_.lock());
    check_mpi(MPI_Barrier(comm_.get()), "MPI_Barrier");
  }
  double slowest(double seconds) {
    const std::lock_guard lock(session_.lock());
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, comm_.get()), "MPI_Allreduce");
    return seconds;
  }
  int64_t sum(int64_t number) {
    const std::lock_guard lock(session_.lock());
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_INT64_T, MPI_SUM, comm_.get()), "MPI_Allreduce");
    return number;
  }

 private:
  MpiSession& session_;
  MpiCommHandle comm_;
};

// Inputs repeat after this many elements, a prime. They are whole numbers between -254 and 254, so that f32
// sums over up to 2^16 ranks are exact in any order.
constexpr int kPeriod = 509;
int input(int index, int rank, int salt) {
  return (index * 31 + rank * 17 + salt * 7) % kPeriod - kPeriod / 2;
}

// Between two values on a straight line, so that 50 is the median.
double percentile(std::vector<double> values, double percent) {
  std::sort(values.begin(), values.end());
  const double place = percent / 100.0 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

class Match {
 public:
  Match(Field& field, std::vector<std::unique_ptr<Contestant>> contestants, const Options& options)
      : field_(field), options_(options), referee_(*field.session), contestants_(std::move(contestants)) {}

  // The body of the benchmark of one size: in each iteration every contestant has a turn.
  void play(benchmark::State& state, int64_t bytes);
  const std::vector<AllReduceRow>& rows() const { return rows_; }

 private:
  double turn(Contestant& contestant, int64_t count, int calls);
  int calls_of_a_turn(Contestant& contestant, int64_t count);
  int64_t count_wrong(Contestant& contestant, int64_t count, int salt);

  Field& field_;
  const Options& options_;
  Referee referee_;
  std::vector<std::unique_ptr<Contestant>> contestants_;
  std::vector<AllReduceRow> rows_;
};

// Seconds of a call on the slowest rank. The first call is not counted: it brings the contestant's memory
// into the caches, from where its predecessor has driven it, and the ranks together.
double Match::turn(Contestant& contestant, int64_t count, int calls) {
  referee_.barrier();
  contestant.run(count, 1);
  const Stopwatch watch;
  contestant.run(count, calls);
  return referee_.slowest(watch.seconds() / calls);
}

// As many as last about two milliseconds, the same on all ranks.
int Match::calls_of_a_turn(Contestant& contestant, int64_t count) {
  const double each = std::max(turn(contestant, count, 1), 1e-8);
  const double refined = each < 2e-4 ? std::max(turn(contestant, count, 10), 1e-8) : each;
  return static_cast<int>(std::clamp(2e-3 / refined, 1.0, 1000.0));
}

int64_t Match::count_wrong(Contestant& contestant, int64_t count, int salt) {
  if (!contestant.sums()) return 0;
  std::array<float, kPeriod> mine{};
  std::array<float, kPeriod> expected{};
  for (int i = 0; i < kPeriod; ++i) {
    const auto at = static_cast<size_t>(i);
    mine[at] = static_cast<float>(input(i, field_.comm().rank(), salt));
    for (int r = 0; r < field_.comm().size(); ++r) expected[at] += static_cast<float>(input(i, r, salt));
  }
  std::vector<float> data(static_cast<size_t>(count));
  for (size_t i = 0; i < data.size(); ++i) data[i] = mine[i % kPeriod];
  contestant.put(data.data(), count);
  contestant.run(count, 1);
  contestant.get(data.data(), count);
  int64_t wrong = 0;
  for (size_t i = 0; i < data.size(); ++i) wrong += data[i] != expected[i % kPeriod];
  // The timed calls sum zeros, which neither grow nor turn into slow denormals.
  std::fill(data.begin(), data.end(), 0.0f);
  contestant.put(data.data(), count);
  return referee_.sum(wrong);
}

void Match::play(benchmark::State& state, int64_t bytes) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  std::vector<int> calls;
  std::vector<int64_t> wrong;
  for (auto& contestant : contestants_) {
    wrong.push_back(count_wrong(*contestant, count, 1));
    calls.push_back(calls_of_a_turn(*contestant, count));
  }
  std::vector<std::vector<double>> seconds(contestants_.size());
  for (auto _ : state) {
    for (size_t i = 0; i < contestants_.size(); ++i) {
      seconds[i].push_back(turn(*contestants_[i], count, calls[i]));
    }
    state.SetIterationTime(seconds.front().back());
  }
  for (size_t i = 0; i < contestants_.size(); ++i) {
    Contestant& contestant = *contestants_[i];
    wrong[i] += count_wrong(contestant, count, 2);
    const double us = percentile(seconds[i], options_.percentile) * 1e6;
    state.counters[fmt::format("{}_us", contestant.name())] = us;
    rows_.push_back({.bytes = bytes,
                     .impl = std::string(contestant.name()),
                     .us = us,
                     .sums = contestant.sums(),
                     .wrong = wrong[i]});
    if (field_.comm().rank() == 0) print_row(rows_.back(), field_.comm().size());
  }
}

// The table is printed row by row, on rank 0; what Google Benchmark would print says less.
class SilentReporter final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& /*report*/) override {}
};

void print_machine(const Field& field) {
  const Topology& topology = field.comm().topology();
  fmt::print("# all-reduce in place, {} ranks on {} host{}, {} each; rondo: {}; mpi: {}\n",
             field.comm().size(), topology.hosts(), topology.hosts() == 1 ? "" : "s",
             field.binding.device->name(), field.comm().name(), MpiSession::library());
}

void check_writable(const std::string& path) {
  if (path.empty()) return;
  if (!std::ofstream(path, std::ios::app))
    raise<FileError>("{}: cannot be written; give a path in a folder that exists", path);
}

int measure(const Options& options) {
  Field field = make_field(options.max, options.bind);
  const bool first = field.comm().rank() == 0;
  if (first) check_writable(options.json);
  Match match(field, make_contestants(options.impls, field), options);
  for (int64_t bytes = options.min; bytes <= options.max; bytes *= options.factor) {
    const auto body = [&match, bytes](benchmark::State& state) { match.play(state, bytes); };
    benchmark::RegisterBenchmark(fmt::format("all_reduce/{}", bytes).c_str(), body)
        ->UseManualTime()
        ->Iterations(options.repeats)
        ->Unit(benchmark::kMicrosecond);
  }
  if (first) {
    print_machine(field);
    print_header();
  }
  SilentReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  int64_t wrong = 0;
  for (const AllReduceRow& row : match.rows()) wrong += row.wrong;
  if (first) {
    fmt::print("# {} wrong elements\n", wrong);
    if (!options.json.empty()) write_json(options.json, match.rows(), field.comm().size());
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    // Takes its own --benchmark_... options away, and would answer --help with them alone.
    benchmark::Initialize(&argc, argv, [] { fmt::print("{}", make_parser().help()); });
    cxxopts::Options parser = make_parser();
    const cxxopts::ParseResult given = parser.parse(argc, argv);
    if (given.count("help") > 0) {
      fmt::print("{}", parser.help());
      return 0;
    }
    require(given.unmatched().empty(), "unexpected word \"{}\"",
            given.unmatched().empty() ? "" : given.unmatched().front());
    return measure(read_options(given));
  } catch (const std::exception& error) {
    fmt::print(stderr, "allreduce_bench: error: {}\n", error.what());
    return 1;
  }
}
