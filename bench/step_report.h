#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "bench/training_step.h"

namespace rondo::bench {

// All steps of a measurement: seconds by phase.
using Readings = std::vector<std::array<double, kPhases>>;

double median(std::vector<double> values);

// Median milliseconds of one phase.
double median_ms(const Readings& readings, Phase phase);

// A table of images/s and of median, 10th and 90th percentile milliseconds, one line a phase.
void print_readings(const std::string& model, int64_t batch, const Readings& readings);

// Rows {"name": "cnn/forward", "images_per_s", "ms"} of medians. Throws FileError.
void write_json(const std::string& path, const std::string& model, int64_t batch, const Readings& readings);

// Median milliseconds of each step of the plan and of the update, and their share of the sum.
void print_profile(const std::deque<StepProfile>& profiles, const Readings& readings);

}  // namespace rondo::bench
