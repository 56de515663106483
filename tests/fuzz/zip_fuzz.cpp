// libFuzzer: any archive is read or refused with std::runtime_error.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "models/keras/helper/zip_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int file = memfd_create("fuzz", MFD_CLOEXEC);
  if (file < 0) return 0;
  if (write(file, data, size) == static_cast<ssize_t>(size)) {
    try {
      rondo::keras::read_zip(("/proc/self/fd/" + std::to_string(file)).c_str(), 1 << 20);
    } catch (const std::runtime_error&) {
    }
  }
  close(file);
  return 0;
}
