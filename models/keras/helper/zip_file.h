// The .keras container: a zip of config.json, metadata.json and model.weights.h5. Runs in the helper only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::keras {

struct ZipContent {
  std::string config_json;
  std::string metadata_json;
  std::vector<char> weights;  // model.weights.h5
};

// Takes the three members, stored or deflated; no other member is looked into. Throws std::runtime_error for
// a damaged archive, members that are missing, doubled or larger than allowed, and names that lead out of the
// archive.
ZipContent read_zip(const char* path, int64_t budget);

// Members are stored, as Keras does.
void write_zip(const char* path, const ZipContent& content);

}  // namespace rondo::keras
