#include "tests/keras/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "models/keras/helper_process.h"
#include "runtime/base/error.h"

namespace rondo::test {

std::string golden(const std::string& name) {
  return RONDO_GOLDEN + name;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

GoldenArrays::GoldenArrays(const std::string& name) : content_(keras::read_file(golden(name))) {}

const std::vector<float>& GoldenArrays::values(const std::string& name) const {
  return std::get<std::vector<float>>(content_.root.arrays.at(name).values);
}

const std::vector<int64_t>& GoldenArrays::shape(const std::string& name) const {
  return content_.root.arrays.at(name).shape;
}

std::vector<std::vector<float>> GoldenArrays::list(const std::string& prefix) const {
  std::vector<std::vector<float>> list;
  for (const auto& [name, array] : content_.root.arrays) {  // in the order of names
    if (name.starts_with(prefix)) list.push_back(std::get<std::vector<float>>(array.values));
  }
  return list;
}

std::vector<std::string> GoldenArrays::names(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const auto& [name, array] : content_.root.arrays) {
    if (name.starts_with(prefix)) names.push_back(name);
  }
  return names;
}

Folder::Folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "rondo-keras-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) raise<FileError>("{}: cannot be made", pattern);
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> Folder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace rondo::test
