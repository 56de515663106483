#include "runtime/train/callbacks/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace rondo {

OutputFile::OutputFile(std::string path, bool append) : path_(std::move(path)), append_(append) {
  file_.reset(std::fopen(path_.c_str(), "ae"));  // e: child processes do not inherit it
  if (!file_) fail("cannot be opened for writing");
}

void OutputFile::fail(std::string_view action) const {
  raise<FileError>("{}: {}: {}; give a path in a folder that exists and may be written to", path_, action,
                   std::strerror(errno));
}

void OutputFile::begin() {
  if (begun_) return;
  begun_ = true;
  // What is no regular file (a pipe, a terminal) has nothing to be emptied.
  struct stat info {};
  if (append_ || fstat(fileno(file_.get()), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (ftruncate(fileno(file_.get()), 0) != 0) fail("cannot be emptied");
}

bool OutputFile::empty() const {
  struct stat info {};
  return fstat(fileno(file_.get()), &info) != 0 || info.st_size == 0;
}

void OutputFile::write(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) fail("cannot be written");
}

void OutputFile::flush() {
  if (std::fflush(file_.get()) != 0) fail("cannot be written");
}

}  // namespace rondo
