#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace rondo {

class Source;
struct SyntheticOptions;

struct ProgramData {
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> validation;  // null: there is none
  std::string note;                          // what the user should know about the choice; may be empty
};

// Opens what --data names. "fashion-mnist" is Debian's package dataset-fashion-mnist, or the directory in
// $RONDO_DATA_DIR; where it is absent, synthetic data of the same shape, and the note says so. A
// `validation_split` above 0 holds out the last samples of the training data and leaves the test samples
// unused. "synthetic" has the shape and classes of `synthetic`, whose size and seed do not count: 60000
// samples, or those of "synthetic:N", and a sixth of them more to validate on. Throws FileError and
// InvalidArgument as load_idx_directory and split_validation do.
ProgramData open_data(const std::string& name, double validation_split, uint64_t seed,
                      const SyntheticOptions& synthetic);

}  // namespace rondo
