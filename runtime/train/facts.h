#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/agreement.h"
#include "runtime/tensor/parameter.h"
#include "runtime/train/trainer.h"

namespace rondo {

// Everything that must be equal on all ranks, as text. All of these are local.

// Version, optimizer, buckets, and each parameter's name, shape, type and layout.
std::vector<Fact> trainer_facts(const ParameterList& parameters, const std::vector<std::string>& value_names,
                                const TrainerOptions& options, std::span<const Bucket> plan);
// The values of all parameters, as the stream finds them.
Fact value_fact(const ParameterList& parameters, Stream& stream);
// What describes a data set; reads it as far as its digest does.
void add_data_facts(std::vector<Fact>& facts, const std::string& what, const Source& data);
std::vector<Fact> fit_facts(const Source& data, const FitOptions& options);

// Throws InvalidArgument for the first option that is out of range.
void check_data(const std::string& what, const Source& data, int64_t batch_size);
void check_fit(const Source& data, const FitOptions& options);

}  // namespace rondo
