#include "models/keras/file_content.h"

namespace rondo::keras {
namespace {

// Takes the first word of "a/b/c".
std::string_view take_word(std::string_view& path) {
  const size_t slash = path.find('/');
  const std::string_view word = path.substr(0, slash);
  path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  return word;
}

std::pair<std::string_view, std::string_view> split_last(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {std::string_view(), path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

const Group* Group::find_group(std::string_view path) const {
  const Group* at = this;
  while (!path.empty()) {
    const auto found = at->groups.find(take_word(path));
    if (found == at->groups.end()) return nullptr;
    at = found->second.get();
  }
  return at;
}

const StoredArray* Group::find_array(std::string_view path) const {
  const auto [folder, name] = split_last(path);
  const Group* group = find_group(folder);
  if (group == nullptr) return nullptr;
  const auto found = group->arrays.find(name);
  return found == group->arrays.end() ? nullptr : &found->second;
}

Group& Group::make_group(std::string_view path) {
  Group* at = this;
  while (!path.empty()) {
    auto& next = at->groups[std::string(take_word(path))];
    if (!next) next = std::make_unique<Group>();
    at = next.get();
  }
  return *at;
}

void Group::put_array(std::string_view path, StoredArray array) {
  const auto [folder, name] = split_last(path);
  make_group(folder).arrays.insert_or_assign(std::string(name), std::move(array));
}

}  // namespace rondo::keras
