#pragma once

#include <utility>

namespace rondo {

// Owns one handle of a C library. `Traits` gives `static T empty()` and `static void destroy(T)`. Moved-from
// is empty; empty is never destroyed.
template <class T, class Traits>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, Traits::empty())) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) reset(std::exchange(other.value_, Traits::empty()));
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(Traits::empty()); }

  void reset(T value) {
    if (value_ != Traits::empty()) Traits::destroy(value_);
    value_ = value;
  }
  T get() const { return value_; }
  explicit operator bool() const { return value_ != Traits::empty(); }

 private:
  T value_ = Traits::empty();
};

}  // namespace rondo
