#include "models/keras/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

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

// "<path>.<process>.<attempt>.part"
bool is_part_of(std::string_view name, std::string_view of) {
  constexpr std::string_view kEnd = ".part";
  if (!name.starts_with(of) || !name.ends_with(kEnd) || name.size() < of.size() + kEnd.size()) return false;
  name = name.substr(of.size(), name.size() - of.size() - kEnd.size());
  return name.starts_with('.') && name.find_first_not_of(".0123456789") == std::string_view::npos;
}

// Removes what killed processes left: files that nobody holds a lock on any more. Where locks do not work,
// nothing is removed.
void remove_leftovers(const std::string& path) {
  std::error_code error;
  const std::string name = path.substr(path.rfind('/') + 1);
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(path), error)) {
    if (!is_part_of(entry.path().filename().string(), name)) continue;
    const Descriptor file(open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
  }
}

// Whether the file still has its name: another process may have taken it for a leftover before it was locked.
bool lock_new(int descriptor) {
  struct stat status {};
  return flock(descriptor, LOCK_EX) != 0 || fstat(descriptor, &status) != 0 || status.st_nlink > 0;
}

}  // namespace

NewFile::NewFile(const std::string& path) : path_(target_of(path)) {
  require(!path.empty(), "a file to write needs a name");
  struct stat old {};
  const bool exists = stat(path_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    raise<FileError>("{}: cannot be replaced: it is not a regular file", path);
  }
  remove_leftovers(path_);
  // Another process may have taken a name.
  for (int attempt = 0; !descriptor_ && attempt < 1000; ++attempt) {
    temporary_ = fmt::format("{}.{}.{}.part", path_, getpid(), attempt);
    descriptor_.reset(open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!descriptor_ && errno != EEXIST) break;
    if (descriptor_ && !lock_new(descriptor_.get())) descriptor_ = Descriptor();
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
