#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace rondo {

// A text file that a callback writes. It is opened, and so found writable, long before it is used; what it
// held is kept until begin(). Every failure throws FileError.
class OutputFile {
 public:
  // Creates the file if need be.
  OutputFile(std::string path, bool append);

  // Empties the file, unless it is to be appended to. The second time it does nothing.
  void begin();
  bool empty() const;
  void write(std::string_view text);
  void flush();
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] void fail(std::string_view action) const;

  std::string path_;
  bool append_;
  bool begun_ = false;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace rondo
