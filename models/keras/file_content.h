// What is in a file of Keras, without its container: groups with arrays and texts. The helper that reads and
// writes files and the library both use it, so it needs neither HDF5 nor the rest of Rondo.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rondo::keras {

// Row-major. Floating-point numbers of a file are float32 here, whole ones int64. A scalar has no extents.
struct StoredArray {
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<int64_t>> values;
};

// A text or a list of texts; other attributes are not kept, except that an empty array of any type is an
// empty list (h5py writes an empty list so).
struct StoredText {
  bool is_list = false;
  std::vector<std::string> values;
};

struct Group {
  std::map<std::string, StoredText, std::less<>> attributes;
  std::map<std::string, StoredArray, std::less<>> arrays;
  std::map<std::string, std::unique_ptr<Group>, std::less<>> groups;

  // Along "a/b/c"; null where there is none. The empty path is this group.
  const Group* find_group(std::string_view path) const;
  const StoredArray* find_array(std::string_view path) const;
  // Makes what is missing on the way.
  Group& make_group(std::string_view path);
  void put_array(std::string_view path, StoredArray array);
};

// Of a .h5 file only `root`.
struct FileContent {
  std::string config_json;
  std::string metadata_json;
  Group root;
};

}  // namespace rondo::keras
