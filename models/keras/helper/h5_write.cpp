#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "models/keras/helper/h5_file.h"
#include "models/keras/helper/handles.h"

namespace rondo::keras {
namespace {

void check(bool good, const std::string& path) {
  if (!good) throw std::runtime_error(fmt::format("{}: cannot be written (is the disk full?)", path));
}

void write_text(hid_t object, const std::string& name, const std::string& text, const std::string& path) {
  const TypeHandle type(H5Tcopy(H5T_C_S1));
  check(H5Tset_size(type.get(), H5T_VARIABLE) >= 0 && H5Tset_cset(type.get(), H5T_CSET_UTF8) >= 0, path);
  const SpaceHandle space(H5Screate(H5S_SCALAR));
  const AttributeHandle attribute(
      H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  const char* value = text.c_str();
  check(attribute && H5Awrite(attribute.get(), type.get(), &value) >= 0, path);
}

void write_texts(hid_t object, const std::string& name, const std::vector<std::string>& texts,
                 const std::string& path) {
  if (texts.empty()) {  // as h5py writes an empty list
    const hsize_t none = 0;
    const SpaceHandle space(H5Screate_simple(1, &none, nullptr));
    const AttributeHandle attribute(
        H5Acreate2(object, name.c_str(), H5T_IEEE_F64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT));
    check(static_cast<bool>(attribute), path);
    return;
  }
  size_t width = 1;
  for (const std::string& text : texts) width = std::max(width, text.size());
  std::vector<char> raw(width * texts.size(), '\0');
  for (size_t i = 0; i < texts.size(); ++i) {
    std::copy(texts[i].begin(), texts[i].end(), raw.begin() + static_cast<ptrdiff_t>(i * width));
  }
  const TypeHandle type(H5Tcopy(H5T_C_S1));
  check(H5Tset_size(type.get(), width) >= 0 && H5Tset_strpad(type.get(), H5T_STR_NULLPAD) >= 0, path);
  const hsize_t count = texts.size();
  const SpaceHandle space(H5Screate_simple(1, &count, nullptr));
  const AttributeHandle attribute(
      H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  check(attribute && H5Awrite(attribute.get(), type.get(), raw.data()) >= 0, path);
}

void write_array(hid_t parent, const std::string& name, const StoredArray& array, const std::string& path) {
  const std::vector<hsize_t> extents(array.shape.begin(), array.shape.end());
  const SpaceHandle space(extents.empty()
                              ? H5Screate(H5S_SCALAR)
                              : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
  const bool whole = std::holds_alternative<std::vector<int64_t>>(array.values);
  const ObjectHandle dataset(H5Dcreate2(parent, name.c_str(), whole ? H5T_STD_I64LE : H5T_IEEE_F32LE,
                                        space.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  check(static_cast<bool>(dataset), path);
  const void* values = std::visit([](const auto& list) -> const void* { return list.data(); }, array.values);
  const hid_t type = whole ? H5T_NATIVE_INT64 : H5T_NATIVE_FLOAT;
  if (H5Sget_simple_extent_npoints(space.get()) == 0) return;
  check(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, path);
}

void write_group(hid_t id, const Group& group, const std::string& path) {
  for (const auto& [name, text] : group.attributes) {
    const std::string place = path + "@" + name;
    if (text.is_list) {
      write_texts(id, name, text.values, place);
    } else {
      write_text(id, name, text.values.at(0), place);
    }
  }
  for (const auto& [name, array] : group.arrays) write_array(id, name, array, path + "/" + name);
  for (const auto& [name, inner] : group.groups) {
    const std::string place = path + "/" + name;
    const ObjectHandle child(H5Gcreate2(id, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    check(static_cast<bool>(child), place);
    write_group(child.get(), *inner, place);
  }
}

FileHandle write_root(const char* path, hid_t access, const Group& root) {
  FileHandle file(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access));
  check(static_cast<bool>(file), "/");
  {
    const ObjectHandle top(H5Gopen2(file.get(), "/", H5P_DEFAULT));
    check(static_cast<bool>(top), "/");
    write_group(top.get(), root, "");
  }
  check(H5Fflush(file.get(), H5F_SCOPE_GLOBAL) >= 0, "/");
  return file;
}

}  // namespace

void write_h5_file(const char* path, const Group& root) {
  write_root(path, H5P_DEFAULT, root);
}

std::vector<char> write_h5_image(const Group& root) {
  const PropertiesHandle access(H5Pcreate(H5P_FILE_ACCESS));
  check(H5Pset_fapl_core(access.get(), size_t{1} << 20, 0) >= 0, "/");
  const FileHandle file = write_root("image", access.get(), root);
  const ssize_t size = H5Fget_file_image(file.get(), nullptr, 0);
  check(size > 0, "/");
  std::vector<char> image(static_cast<size_t>(size));
  check(H5Fget_file_image(file.get(), image.data(), image.size()) == size, "/");
  return image;
}

}  // namespace rondo::keras
