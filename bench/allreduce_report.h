// What allreduce_bench prints and writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::bench {

struct AllReduceRow {
  int64_t bytes = 0;
  std::string impl;
  double us = 0.0;    // median (or --percentile) over the rounds of the slowest rank's time of a call
  bool sums = true;   // false: a copy, which has no result to check and no bus factor
  int64_t wrong = 0;  // elements over all ranks that are not the exact sum
};

// GB/s of payload: bytes / time.
double algorithm_bandwidth(const AllReduceRow& row);
// What each rank must at least send, and receive, for it: times 2 (n - 1) / n for a sum over n ranks.
double bus_bandwidth(const AllReduceRow& row, int ranks);

void print_header();
void print_row(const AllReduceRow& row, int ranks);

// Rows {"bytes", "impl", "us", "algbw_gbs", "busbw_gbs"}. Throws FileError.
void write_json(const std::string& path, const std::vector<AllReduceRow>& rows, int ranks);

// "4", "64K", "16M", "1G" (powers of 1024) as bytes. Throws InvalidArgument.
int64_t parse_size(std::string_view option, const std::string& text);

}  // namespace rondo::bench
