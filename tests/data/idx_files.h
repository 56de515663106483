// Builds IDX files for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace rondo {

// A directory of its own, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& content) const;

 private:
  std::filesystem::path path_;
};

std::string idx_header(int type, const std::vector<uint32_t>& extents);
// An IDX file of bytes 0, 1, 2, ... modulo `modulus`.
std::string idx_bytes(const std::vector<uint32_t>& extents, int modulus = 256);
std::string gzipped(const std::string& content);

}  // namespace rondo
