// FileReader: the bytes of a file, inflated if it is a gzip file.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rondo {

class FileReader {
 public:
  // Throws FileError when the file is missing, not a regular file or unreadable, or named ".gz" without being
  // gzip.
  explicit FileReader(const std::filesystem::path& path);
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader();

  const std::string& path() const { return path_; }
  bool gzip() const { return gzip_; }
  int64_t file_bytes() const { return file_bytes_; }  // as stored
  // No more bytes than this can come out, whatever the file says about itself.
  int64_t most_bytes() const;

  // Fills `to` and returns its size, or less at the end of the content. Throws FileError for a read error and
  // for a damaged gzip stream; a cut one is noticed when its end is asked for.
  size_t read(std::span<std::byte> to);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  size_t read_file(void* to, size_t bytes);
  size_t inflate_into(std::span<std::byte> to);
  bool refill();

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  int64_t file_bytes_ = 0;
  bool gzip_ = false;
  bool member_ended_ = false;
  z_stream stream_{};
  std::vector<unsigned char> buffer_;
};

}  // namespace rondo
