#pragma once

#include <exception>

#include "runtime/device/device.h"

namespace rondo {

// Waits for a stream's work when it goes, also when an exception passes: memory that the work uses and that
// was made before this object then goes after the work.
class QuietAtEnd {
 public:
  explicit QuietAtEnd(Stream& stream) : stream_(stream) {}
  ~QuietAtEnd() {
    try {
      stream_.synchronize();
    } catch (const std::exception&) {
      // A failed device touches no memory any more, and whoever waits for it is told.
    }
  }
  QuietAtEnd(const QuietAtEnd&) = delete;
  QuietAtEnd& operator=(const QuietAtEnd&) = delete;

 private:
  Stream& stream_;
};

}  // namespace rondo
