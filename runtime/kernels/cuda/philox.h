// The counter-based generator of runtime/base/random.h, for kernels.
#pragma once

#include <cstdint>

#include "runtime/base/functors.h"

namespace rondo::cuda {

struct PhiloxWords {
  uint32_t w[4];
};

// Philox4x32-10 (Salmon et al., SC'11).
RONDO_HOST_DEVICE inline PhiloxWords philox(PhiloxWords x, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * x.w[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * x.w[2];
    x = {{static_cast<uint32_t>(p1 >> 32) ^ x.w[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ x.w[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

// What philox_key() of runtime/base/random.h gives; the first two words.
RONDO_HOST_DEVICE inline PhiloxWords philox_key_words(uint64_t seed, uint32_t purpose, uint32_t stream) {
  return philox({{purpose, stream, 0x526f6e64u, 0x6fu}}, static_cast<uint32_t>(seed),
                static_cast<uint32_t>(seed >> 32));
}

}  // namespace rondo::cuda
