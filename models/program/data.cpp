#include "models/program/data.h"

#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/formats/idx.h"
#include "runtime/data/source.h"
#include "runtime/data/synthetic.h"

namespace rondo {
namespace {

constexpr std::string_view kSynthetic = "synthetic";
constexpr int64_t kTrainSamples = 60000;  // Fashion-MNIST's, which has 10000 more to validate on

// One source for both parts: they must have the same classes.
ProgramData synthetic_data(SyntheticOptions options, uint64_t seed, int64_t samples = kTrainSamples) {
  const int64_t validation = (samples + 5) / 6;
  options.size = samples + validation;
  options.seed = seed;
  const auto all = std::make_shared<SyntheticSource>(options);
  ProgramData data;
  data.train = std::make_shared<SubsetSource>(all, 0, samples, "synthetic (train)");
  data.validation = std::make_shared<SubsetSource>(all, samples, validation, "synthetic (validation)");
  return data;
}

// N of "synthetic:N".
int64_t synthetic_samples(std::string_view name) {
  name.remove_prefix(kSynthetic.size());
  if (name.empty()) return kTrainSamples;
  int64_t samples = 0;
  const char* const end = name.data() + name.size();
  const auto [next, error] = std::from_chars(name.data() + 1, end, samples);
  require(error == std::errc() && next == end && samples > 0 && samples <= int64_t{1} << 40,
          "--data synthetic{}: behind the colon stands a number of samples, such as synthetic:1000", name);
  return samples;
}

ProgramData idx_data(const std::filesystem::path& directory) {
  const IdxDataset files = load_idx_directory(directory);
  return {files.train, files.test, {}};
}

ProgramData named_data(const std::string& name, uint64_t seed, const SyntheticOptions& synthetic) {
  if (name == kSynthetic || name.starts_with("synthetic:")) {
    return synthetic_data(synthetic, seed, synthetic_samples(name));
  }
  if (name == "fashion-mnist") {
    if (const auto directory = find_fashion_mnist()) return idx_data(*directory);
    ProgramData data = synthetic_data({}, seed);
    data.note =
        "Fashion-MNIST is not installed (Debian: apt-get install dataset-fashion-mnist); "
        "training on synthetic data of the same size instead";
    return data;
  }
  std::error_code error;
  if (!std::filesystem::is_directory(name, error)) {
    raise<FileError>(
        "{}: no such directory; --data takes fashion-mnist, synthetic, or a directory of IDX files", name);
  }
  return idx_data(name);
}

}  // namespace

ProgramData open_data(const std::string& name, double validation_split, uint64_t seed,
                      const SyntheticOptions& synthetic) {
  ProgramData data = named_data(name, seed, synthetic);
  if (validation_split > 0.0) {
    const TrainValidation parts = split_validation(data.train, validation_split);
    data.train = parts.train;
    data.validation = parts.validation;
  }
  return data;
}

}  // namespace rondo
