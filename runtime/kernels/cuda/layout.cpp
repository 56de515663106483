#include "runtime/kernels/cuda/layout.h"

#include <memory>
#include <string>

namespace rondo::cuda {
namespace {

class FiltersFirst final : public LayoutDetail {
 public:
  explicit FiltersFirst(int64_t bytes) : bytes_(bytes) {}
  int64_t bytes() const override { return bytes_; }
  bool equals(const LayoutDetail& other) const override {
    const auto* that = dynamic_cast<const FiltersFirst*>(&other);
    return that != nullptr && that->bytes_ == bytes_;
  }
  std::string text() const override { return "filters first"; }

 private:
  int64_t bytes_;
};

}  // namespace

Layout filters_first_layout(int64_t bytes) {
  return Layout(std::make_shared<FiltersFirst>(bytes));
}

bool filters_first(const Layout& layout) {
  return dynamic_cast<const FiltersFirst*>(layout.detail()) != nullptr;
}

}  // namespace rondo::cuda
