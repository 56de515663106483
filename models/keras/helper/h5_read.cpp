#include <fmt/core.h>

#include <cstring>
#include <set>
#include <stdexcept>

#include "models/keras/helper/h5_file.h"
#include "models/keras/helper/handles.h"
#include "models/keras/wire.h"

namespace rondo::keras {
namespace {

// Deflate makes a byte of at most 1032.
constexpr int64_t kMostExpansion = 1100;

[[noreturn]] void fail(const std::string& path, const std::string& text) {
  throw std::runtime_error(fmt::format("{}: {}", path.empty() ? "/" : path, text));
}

// The names that an H5 iteration meets; exceptions must not cross the library.
struct Names {
  std::vector<std::string> names;
  bool leads_out = false;
};

herr_t note_link(hid_t, const char* name, const H5L_info_t* info, void* data) {
  auto& names = *static_cast<Names*>(data);
  try {
    if (info->type != H5L_TYPE_HARD) names.leads_out = true;
    if (static_cast<int64_t>(names.names.size()) > kMostThings) return -1;
    names.names.emplace_back(name);
    return 0;
  } catch (...) {
    return -1;
  }
}

herr_t note_attribute(hid_t, const char* name, const H5A_info_t*, void* data) {
  auto& names = *static_cast<Names*>(data);
  try {
    if (static_cast<int64_t>(names.names.size()) > kMostThings) return -1;
    names.names.emplace_back(name);
    return 0;
  } catch (...) {
    return -1;
  }
}

class Reader {
 public:
  Reader(int64_t budget, Wire& wire) : left_(budget), wire_(wire) {}

  void read_group(hid_t id, const std::string& path, int depth) {
    if (depth > kMostDepth) fail(path, "groups are nested too deep");
    note_object(id, path);
    read_attributes(id, path);
    Names links;
    if (H5Literate(id, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, &note_link, &links) < 0) {
      fail(path, "the list of what is in the group is damaged");
    }
    if (links.leads_out) fail(path, "holds links to other places, which are not followed");
    for (const std::string& name : links.names) read_object(id, name, path + "/" + name, depth);
  }

 private:
  void count_thing(const std::string& path) {
    if (++things_ > kMostThings) fail(path, "more than a million objects");
  }

  // A group that is met again contains itself, or is there twice: neither is a tree.
  void note_object(hid_t id, const std::string& path) {
    count_thing(path);
    H5O_info_t info{};
    if (H5Oget_info2(id, &info, H5O_INFO_BASIC) < 0) fail(path, "is damaged");
    if (!seen_.insert(info.addr).second) fail(path, "is a group that was met before: links form a circle");
  }

  void read_object(hid_t parent, const std::string& name, const std::string& path, int depth) {
    const ObjectHandle object(H5Oopen(parent, name.c_str(), H5P_DEFAULT));
    if (!object) fail(path, "cannot be opened: it is damaged");
    const H5I_type_t type = H5Iget_type(object.get());
    if (type == H5I_GROUP) {
      wire_.send_number(static_cast<int64_t>(Record::kBeginGroup));
      wire_.send_text(name);
      read_group(object.get(), path, depth + 1);
      wire_.send_number(static_cast<int64_t>(Record::kEndGroup));
    } else if (type == H5I_DATASET) {
      count_thing(path);
      read_array(object.get(), name, path);
    }
  }

  void read_attributes(hid_t id, const std::string& path) {
    Names names;
    hsize_t at = 0;
    if (H5Aiterate2(id, H5_INDEX_NAME, H5_ITER_NATIVE, &at, &note_attribute, &names) < 0) {
      fail(path, "its attributes are damaged");
    }
    for (const std::string& name : names.names) read_attribute(id, name, path + "@" + name);
  }

  void read_attribute(hid_t id, const std::string& name, const std::string& path) {
    count_thing(path);
    const AttributeHandle attribute(H5Aopen(id, name.c_str(), H5P_DEFAULT));
    const SpaceHandle space(attribute ? H5Aget_space(attribute.get()) : H5I_INVALID_HID);
    const TypeHandle type(attribute ? H5Aget_type(attribute.get()) : H5I_INVALID_HID);
    if (!space || !type) fail(path, "is damaged");
    const hssize_t count = H5Sget_simple_extent_npoints(space.get());
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (count < 0 || rank < 0) fail(path, "is damaged");
    StoredText text{.is_list = rank > 0 || count == 0, .values = {}};
    if (count > 0) {
      if (H5Tget_class(type.get()) != H5T_STRING) return;
      if (rank > 1 || count > kMostThings) fail(path, "is not a text or a list of texts");
      const htri_t variable = H5Tis_variable_str(type.get());
      if (variable < 0) fail(path, "is damaged");
      text.values = variable > 0 ? variable_texts(attribute.get(), type.get(), space.get(), count, path)
                                 : fixed_texts(attribute.get(), type.get(), count, path);
    }
    send_attribute(wire_, name, text);
  }

  void spend(int64_t bytes, const std::string& path) {
    left_ -= bytes;
    if (left_ < 0) fail(path, "the file claims to hold more data than it has bytes for");
  }

  std::vector<std::string> variable_texts(hid_t attribute, hid_t type, hid_t space, hssize_t count,
                                          const std::string& path) {
    const TypeHandle memory(H5Tcopy(H5T_C_S1));
    H5Tset_size(memory.get(), H5T_VARIABLE);
    H5Tset_cset(memory.get(), H5Tget_cset(type));
    std::vector<char*> raw(static_cast<size_t>(count), nullptr);
    if (H5Aread(attribute, memory.get(), raw.data()) < 0) fail(path, "cannot be read: it is damaged");
    std::vector<std::string> texts;
    for (const char* text : raw) {
      const size_t size = text == nullptr ? 0 : std::strlen(text);
      if (static_cast<int64_t>(size) > kMostText) fail(path, "is larger than 64 MiB");
      spend(static_cast<int64_t>(size), path);
      texts.emplace_back(text == nullptr ? "" : text, size);
    }
    H5Dvlen_reclaim(memory.get(), space, H5P_DEFAULT, raw.data());
    return texts;
  }

  std::vector<std::string> fixed_texts(hid_t attribute, hid_t type, hssize_t count, const std::string& path) {
    const auto size = static_cast<int64_t>(H5Tget_size(type));
    if (size <= 0 || size > kMostText / count) fail(path, "is larger than 64 MiB");
    spend(size * count, path);
    std::vector<char> raw(static_cast<size_t>(size * count));
    if (H5Aread(attribute, type, raw.data()) < 0) fail(path, "cannot be read: it is damaged");
    const bool spaces = H5Tget_strpad(type) == H5T_STR_SPACEPAD;
    std::vector<std::string> texts;
    for (int64_t i = 0; i < count; ++i) {
      const char* first = raw.data() + i * size;
      std::string text(first, strnlen(first, static_cast<size_t>(size)));
      while (spaces && !text.empty() && text.back() == ' ') text.pop_back();
      texts.push_back(std::move(text));
    }
    return texts;
  }

  void check_storage(hid_t dataset, int64_t bytes, const std::string& path) {
    const PropertiesHandle plan(H5Dget_create_plist(dataset));
    if (!plan) fail(path, "is damaged");
    if (H5Pget_layout(plan.get()) == H5D_VIRTUAL || H5Pget_external_count(plan.get()) != 0) {
      fail(path, "its data lies in other files, which are not read");
    }
    const auto stored = static_cast<int64_t>(H5Dget_storage_size(dataset));
    if (stored < 0 || bytes / kMostExpansion > stored) {
      fail(path, fmt::format("claims {} bytes of data, but {} are stored", bytes, stored));
    }
    spend(bytes, path);
  }

  void read_array(hid_t dataset, const std::string& name, const std::string& path) {
    const SpaceHandle space(H5Dget_space(dataset));
    const TypeHandle type(H5Dget_type(dataset));
    if (!space || !type) fail(path, "is damaged");
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 0 || rank > kMostExtents) fail(path, "is damaged");
    std::vector<hsize_t> extents(static_cast<size_t>(rank));
    if (H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr) < 0) fail(path, "is damaged");
    StoredArray array;
    for (const hsize_t extent : extents) array.shape.push_back(static_cast<int64_t>(extent));
    const int64_t count = count_elements(array.shape);
    if (count < 0) fail(path, "has a shape beyond all measure");
    const H5T_class_t kind = H5Tget_class(type.get());
    // Element size on either side of the conversion.
    const auto width = std::max<int64_t>(8, static_cast<int64_t>(H5Tget_size(type.get())));
    if ((kind != H5T_FLOAT && kind != H5T_INTEGER) || width > 8) {
      fail(path, "holds neither whole nor floating-point numbers");
    }
    check_storage(dataset, count * width, path);
    herr_t status = 0;
    if (kind == H5T_FLOAT) {
      std::vector<float> values(static_cast<size_t>(count));
      status = H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
      array.values = std::move(values);
    } else {
      std::vector<int64_t> values(static_cast<size_t>(count));
      status = H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
      array.values = std::move(values);
    }
    if (status < 0) fail(path, "its data cannot be read: the file is damaged or cut off");
    send_array(wire_, name, array);
  }

  int64_t left_;
  Wire& wire_;
  int64_t things_ = 0;
  std::set<haddr_t> seen_;
};

void send_open_file(const FileHandle& file, int64_t budget, Wire& wire) {
  if (!file) throw std::runtime_error("is no readable HDF5 file: its structure is damaged or cut off");
  const ObjectHandle root(H5Oopen(file.get(), "/", H5P_DEFAULT));
  if (!root) throw std::runtime_error("is no readable HDF5 file: its root group is damaged");
  Reader(budget, wire).read_group(root.get(), "", 0);
}

}  // namespace

void send_h5_file(const char* path, int64_t budget, Wire& wire) {
  send_open_file(FileHandle(H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT)), budget, wire);
}

void send_h5_image(std::vector<char>& image, int64_t budget, Wire& wire) {
  const PropertiesHandle access(H5Pcreate(H5P_FILE_ACCESS));
  if (H5Pset_fapl_core(access.get(), size_t{1} << 20, 0) < 0 ||
      H5Pset_file_image(access.get(), image.data(), image.size()) < 0) {
    throw std::runtime_error("cannot be read from memory");
  }
  send_open_file(FileHandle(H5Fopen("image", H5F_ACC_RDONLY, access.get())), budget, wire);
}

}  // namespace rondo::keras
