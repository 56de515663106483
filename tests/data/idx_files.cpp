#include "tests/data/idx_files.h"

#include <zlib.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace rondo {

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "rondo-data-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryDirectory::write(const std::string& name, const std::string& content) const {
  std::filesystem::remove(path_ / name);  // quicker than to truncate, which some file systems flush
  std::ofstream file(path_ / name, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + name);
  return path_ / name;
}

std::string idx_header(int type, const std::vector<uint32_t>& extents) {
  std::string text{'\0', '\0', static_cast<char>(type), static_cast<char>(extents.size())};
  for (const uint32_t extent : extents) {
    for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(extent >> shift & 0xff));
  }
  return text;
}

std::string idx_bytes(const std::vector<uint32_t>& extents, int modulus) {
  std::string text = idx_header(0x08, extents);
  uint32_t count = 1;
  for (const uint32_t extent : extents) count *= extent;
  for (uint32_t i = 0; i < count; ++i) text.push_back(static_cast<char>(i % static_cast<uint32_t>(modulus)));
  return text;
}

std::string gzipped(const std::string& content) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string out(deflateBound(&stream, content.size()) + 32, '\0');
  std::string in = content;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("deflate");
  return out;
}

}  // namespace rondo
