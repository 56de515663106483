#include "models/keras/helper/zip_file.h"

#include <fmt/core.h>
#include <minizip/unzip.h>
#include <minizip/zip.h>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string_view>

#include "models/keras/wire.h"
#include "runtime/base/handle.h"

namespace rondo::keras {
namespace {

struct UnzipTraits {
  static unzFile empty() { return nullptr; }
  static void destroy(unzFile file) { unzClose(file); }
};
struct CloseZip {
  void operator()(zipFile file) const { zipClose(file, nullptr); }
};

[[noreturn]] void fail(const std::string& text) {
  throw std::runtime_error(text);
}

// A name of an archive must stay below the folder it is unpacked into, even though we unpack nothing.
bool leads_out(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\\') != std::string_view::npos) return true;
  while (!name.empty()) {
    const size_t slash = name.find('/');
    if (name.substr(0, slash) == "..") return true;
    if (slash == std::string_view::npos) break;
    name.remove_prefix(slash + 1);
  }
  return false;
}

template <class Bytes>
void read_member(unzFile zip, const std::string& name, int64_t size, Bytes& into) {
  if (unzOpenCurrentFile(zip) != UNZ_OK) fail(name + ": cannot be opened: it is encrypted or damaged");
  constexpr int64_t kPiece = int64_t{1} << 20;
  int got = 1;
  while (got > 0) {
    const size_t before = into.size();
    // One byte more than announced shows that there is more.
    const auto more = static_cast<size_t>(std::min(kPiece, size + 1 - static_cast<int64_t>(before)));
    into.resize(before + more);
    got = unzReadCurrentFile(zip, into.data() + before, static_cast<unsigned>(more));
    into.resize(before + static_cast<size_t>(std::max(got, 0)));
    if (static_cast<int64_t>(into.size()) > size) fail(name + ": is larger than its entry says");
  }
  if (got < 0 || static_cast<int64_t>(into.size()) != size) fail(name + ": is cut off or damaged");
  if (unzCloseCurrentFile(zip) != UNZ_OK) fail(name + ": its checksum is wrong");
}

}  // namespace

ZipContent read_zip(const char* path, int64_t budget) {
  const Handle<unzFile, UnzipTraits> zip(unzOpen64(path));
  if (!zip) fail("is no readable zip archive: it is damaged or cut off");
  ZipContent content;
  std::set<std::string> seen;
  int status = unzGoToFirstFile(zip.get());
  for (int members = 0; status == UNZ_OK; status = unzGoToNextFile(zip.get())) {
    if (++members > 10'000) fail("the archive has more than 10000 members");
    unz_file_info64 info{};
    std::string name(1024, '\0');
    if (unzGetCurrentFileInfo64(zip.get(), &info, name.data(), name.size(), nullptr, 0, nullptr, 0) !=
            UNZ_OK ||
        info.size_filename >= name.size()) {
      fail("the archive's list of members is damaged");
    }
    name.resize(info.size_filename);
    if (leads_out(name)) fail(fmt::format("the archive has a member \"{}\", which leads out of it", name));
    if (!seen.insert(name).second) fail(fmt::format("the archive has two members \"{}\"", name));
    const bool weights = name == "model.weights.h5";
    if (!weights && name != "config.json" && name != "metadata.json") continue;
    const auto size = static_cast<int64_t>(info.uncompressed_size);
    if (size < 0 || size > (weights ? budget : kMostText)) {
      fail(fmt::format("{}: claims {} bytes, more than it can have", name, size));
    }
    if (weights) {
      read_member(zip.get(), name, size, content.weights);
    } else {
      read_member(zip.get(), name, size, name == "config.json" ? content.config_json : content.metadata_json);
    }
  }
  if (status != UNZ_END_OF_LIST_OF_FILE) fail("the archive's list of members is damaged");
  for (const char* name : {"config.json", "model.weights.h5"}) {
    if (!seen.contains(name)) fail(fmt::format("the archive has no member \"{}\"", name));
  }
  return content;
}

void write_zip(const char* path, const ZipContent& content) {
  std::unique_ptr<void, CloseZip> zip(zipOpen64(path, APPEND_STATUS_CREATE));
  if (!zip) fail("cannot be written");
  const auto add = [&](const char* name, std::span<const char> bytes) {
    zip_fileinfo info{};
    info.tmz_date = {0, 0, 0, 1, 0, 1980};
    const int wide = bytes.size() > 0xf0000000u ? 1 : 0;
    bool good =
        zipOpenNewFileInZip64(zip.get(), name, &info, nullptr, 0, nullptr, 0, nullptr, 0, 0, wide) == ZIP_OK;
    while (good && !bytes.empty()) {
      const size_t piece = std::min<size_t>(bytes.size(), size_t{1} << 26);
      good = zipWriteInFileInZip(zip.get(), bytes.data(), static_cast<unsigned>(piece)) == ZIP_OK;
      bytes = bytes.subspan(piece);
    }
    if (!good || zipCloseFileInZip(zip.get()) != ZIP_OK) fail(fmt::format("{}: cannot be written", name));
  };
  add("metadata.json", content.metadata_json);
  add("config.json", content.config_json);
  add("model.weights.h5", content.weights);
  if (zipClose(zip.release(), nullptr) != ZIP_OK) fail("the archive's list of members cannot be written");
}

}  // namespace rondo::keras
