#include "models/keras/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/base/error.h"

namespace rondo::keras {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A link is followed, so that the file it names is replaced and not the link.
std::string target_of(const std::string& path) {
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return path;
  std::string target = resolved;
  std::free(resolved);
  return target;
}

}  // namespace

NewFile::NewFile(const std::string& path) : path_(target_of(path)) {
  require(!path.empty(), "a file to write needs a name");
  struct stat old {};
  const bool exists = stat(path_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    raise<FileError>("{}: cannot be replaced: it is not a regular file", path);
  }
  // Another process, or one that was killed here before, may have taken a name.
  for (int attempt = 0; !descriptor_ && attempt < 1000; ++attempt) {
    temporary_ = fmt::format("{}.{}.{}.part", path_, getpid(), attempt);
    descriptor_.reset(open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!descriptor_ && errno != EEXIST) break;
  }
  if (!descriptor_) {
    raise<FileError>("{}: cannot be written: {}; give a path in a folder that exists and may be written to",
                     path, strerror(errno));
  }
  if (exists && fchmod(descriptor_.get(), old.st_mode & 0777) != 0) {
    unlink(temporary_.c_str());
    raise<FileError>("{}: cannot be written: {}", path, strerror(errno));
  }
}

NewFile::~NewFile() {
  if (!committed_ && descriptor_) unlink(temporary_.c_str());
}

void NewFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) raise<FileError>("{}: cannot be written: {}", path_, strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void NewFile::commit() {
  if (fsync(descriptor_.get()) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    raise<FileError>("{}: cannot be written: {}", path_, strerror(errno));
  }
  committed_ = true;
  const Descriptor folder(open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) fsync(folder.get());  // some file systems have no such thing: the file is whole either way
}

}  // namespace rondo::keras
