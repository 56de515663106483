#include "bench/allreduce_report.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"

namespace rondo::bench {

double algorithm_bandwidth(const AllReduceRow& row) {
  return static_cast<double>(row.bytes) / row.us * 1e-3;
}

double bus_bandwidth(const AllReduceRow& row, int ranks) {
  return algorithm_bandwidth(row) * (row.sums ? 2.0 * (ranks - 1) / ranks : 1.0);
}

void print_header() {
  fmt::print("#{:>11} {:>12} {:>6} {:>5} {:>11} {:>12} {:>8} {:>8} {:>7}\n", "size", "count", "type", "op",
             "impl", "time", "algbw", "busbw", "#wrong");
  fmt::print("#{:>11} {:>12} {:>6} {:>5} {:>11} {:>12} {:>8} {:>8}\n", "(B)", "(elements)", "", "", "",
             "(us)", "(GB/s)", "(GB/s)");
}

void print_row(const AllReduceRow& row, int ranks) {
  fmt::print(" {:>11} {:>12} {:>6} {:>5} {:>11} {:>12.3f} {:>8.3f} {:>8.3f} {:>7}\n", row.bytes,
             row.bytes / 4, "float", row.sums ? "sum" : "none", row.impl, row.us, algorithm_bandwidth(row),
             bus_bandwidth(row, ranks), row.sums ? std::to_string(row.wrong) : "N/A");
  std::fflush(stdout);
}

void write_json(const std::string& path, const std::vector<AllReduceRow>& rows, int ranks) {
  std::ofstream file(path);
  const char* separator = "[";
  for (const AllReduceRow& row : rows) {  // one a line, for line-wise tools
    const nlohmann::ordered_json object{{"bytes", row.bytes},
                                        {"impl", row.impl},
                                        {"us", row.us},
                                        {"algbw_gbs", algorithm_bandwidth(row)},
                                        {"busbw_gbs", bus_bandwidth(row, ranks)}};
    file << separator << '\n' << object.dump();
    separator = ",";
  }
  file << "\n]\n";
  file.close();
  if (!file) raise<FileError>("{}: cannot be written; give a path in a folder that exists", path);
}

int64_t parse_size(std::string_view option, const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  require(error == std::errc() && shift >= 0 && value > 0 && value <= (INT64_C(1) << 40 >> shift),
          "--{}: expected bytes as in 4, 64K, 16M or 1G, got \"{}\"", option, text);
  value <<= shift;
  require(value % 4 == 0, "--{}: {} is no whole number of f32 elements (4 bytes each)", option, text);
  return value;
}

}  // namespace rondo::bench
