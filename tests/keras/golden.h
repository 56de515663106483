// What real Keras wrote (make_golden.py), and places for files of tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/keras/file_content.h"

namespace rondo::test {

std::string golden(const std::string& name);
std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

// The arrays of a file beside the models: inputs "x", outputs "y", "weight00", ...
class GoldenArrays {
 public:
  explicit GoldenArrays(const std::string& name);
  const std::vector<float>& values(const std::string& name) const;
  const std::vector<int64_t>& shape(const std::string& name) const;
  // "<prefix>00", "<prefix>01", ... or with one digit.
  std::vector<std::vector<float>> list(const std::string& prefix) const;
  std::vector<std::string> names(const std::string& prefix) const;

 private:
  keras::FileContent content_;
};

// A folder of its own, removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::vector<std::string> names() const;

 private:
  std::string path_;
};

}  // namespace rondo::test
