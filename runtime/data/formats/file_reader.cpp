#include "runtime/data/formats/file_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "runtime/base/error.h"

namespace rondo {
namespace {

constexpr size_t kBuffer = size_t{64} << 10;
constexpr int kGzipWindow = 15 + 16;      // the largest window, with a gzip header and its checksum
constexpr int64_t kMostInflation = 1032;  // deflate cannot make more of a byte: 258 bytes from 2 bits
constexpr unsigned char kSignature[2] = {0x1f, 0x8b};

}  // namespace

FileReader::FileReader(const std::filesystem::path& path) : path_(path.string()) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    raise<FileError>("{}: no such file; check the path", path_);
  }
  if (error) raise<FileError>("{}: cannot look at the file: {}", path_, error.message());
  if (!std::filesystem::is_regular_file(status)) {
    raise<FileError>("{}: not a regular file; give the path of a data file", path_);
  }
  file_bytes_ = static_cast<int64_t>(std::filesystem::file_size(path, error));
  file_.reset(std::fopen(path_.c_str(), "rb"));
  if (error || file_ == nullptr) {
    const std::string why = error ? error.message() : std::strerror(errno);
    raise<FileError>("{}: cannot open the file: {}; check its permissions", path_, why);
  }

  unsigned char head[2] = {};
  gzip_ = read_file(head, sizeof head) == sizeof head && std::equal(head, head + 2, kSignature);
  if (!gzip_ && path.extension() == ".gz") {
    raise<FileError>(
        "{}: named .gz, but it does not begin with the gzip signature 1f 8b (found {:02x} {:02x}); rename it "
        "if it is "
        "not compressed, else get the file again",
        path_, head[0], head[1]);
  }
  std::rewind(file_.get());
  if (gzip_) {
    buffer_.resize(kBuffer);
    if (inflateInit2(&stream_, kGzipWindow) != Z_OK) {
      raise<FileError>("{}: zlib cannot start (out of memory?)", path_);
    }
  }
}

FileReader::~FileReader() {
  if (gzip_) inflateEnd(&stream_);
}

int64_t FileReader::most_bytes() const {
  if (!gzip_) return file_bytes_;
  return file_bytes_ > std::numeric_limits<int64_t>::max() / kMostInflation
             ? std::numeric_limits<int64_t>::max()
             : file_bytes_ * kMostInflation;
}

size_t FileReader::read(std::span<std::byte> to) {
  return gzip_ ? inflate_into(to) : read_file(to.data(), to.size());
}

size_t FileReader::read_file(void* to, size_t bytes) {
  const size_t got = std::fread(to, 1, bytes, file_.get());
  if (got < bytes && std::ferror(file_.get()) != 0) {
    raise<FileError>("{}: read error: {}", path_, std::strerror(errno));
  }
  return got;
}

// More compressed bytes into the buffer; false at the end of the file.
bool FileReader::refill() {
  if (stream_.avail_in > 0) return true;
  stream_.next_in = buffer_.data();
  stream_.avail_in = static_cast<uInt>(read_file(buffer_.data(), buffer_.size()));
  return stream_.avail_in > 0;
}

size_t FileReader::inflate_into(std::span<std::byte> to) {
  size_t done = 0;
  while (done < to.size()) {
    if (member_ended_) {  // a gzip file may be several members, one after the other
      if (!refill()) break;
      if (stream_.next_in[0] != kSignature[0]) {
        raise<FileError>("{}: bytes that are not gzip follow the gzip stream; get the file again", path_);
      }
      inflateReset(&stream_);
      member_ended_ = false;
    }
    if (!refill()) {
      raise<FileError>("{}: the gzip stream is cut off after {} bytes of the file; get the file again", path_,
                       file_bytes_);
    }
    const size_t room = std::min<size_t>(to.size() - done, std::numeric_limits<uInt>::max());
    stream_.next_out = reinterpret_cast<Bytef*>(to.data() + done);
    stream_.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    done += room - stream_.avail_out;
    if (result == Z_STREAM_END) {
      member_ended_ = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      raise<FileError>("{}: the gzip stream is damaged ({}); get the file again", path_,
                       stream_.msg != nullptr ? stream_.msg : zError(result));
    }
  }
  return done;
}

}  // namespace rondo
