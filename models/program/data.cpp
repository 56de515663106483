#include "models/program/data.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/formats/idx.h"
#include "runtime/data/source.h"
#include "runtime/data/synthetic.h"

namespace rondo {
namespace {

// As large as Fashion-MNIST. One source for both parts: they must have the same classes.
ProgramData synthetic_data(SyntheticOptions options, uint64_t seed) {
  constexpr int64_t kTrain = 60000;
  constexpr int64_t kValidation = 10000;
  options.size = kTrain + kValidation;
  options.seed = seed;
  const auto all = std::make_shared<SyntheticSource>(options);
  ProgramData data;
  data.train = std::make_shared<SubsetSource>(all, 0, kTrain, "synthetic (train)");
  data.validation = std::make_shared<SubsetSource>(all, kTrain, kValidation, "synthetic (validation)");
  return data;
}

ProgramData idx_data(const std::filesystem::path& directory) {
  const IdxDataset files = load_idx_directory(directory);
  return {files.train, files.test, {}};
}

ProgramData named_data(const std::string& name, uint64_t seed, const SyntheticOptions& synthetic) {
  if (name == "synthetic") return synthetic_data(synthetic, seed);
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
