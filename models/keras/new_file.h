// A file that appears under its name only when it is whole.
#pragma once

#include <string>
#include <string_view>

#include "models/keras/descriptor.h"

namespace rondo::keras {

// Throws FileError. Until commit() the file has a temporary name in the same folder; without commit() it is
// removed; what a killed process left of the same file is removed by the next one.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  int descriptor() const { return descriptor_.get(); }
  void write(std::string_view bytes);
  // Waits until the bytes are on the disk, gives the file its name, and waits until the folder knows.
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  Descriptor descriptor_;
  bool committed_ = false;
};

}  // namespace rondo::keras
