#include "runtime/kernels/cpu/dropout_loops.h"

#include "runtime/kernels/cpu/loops.h"

namespace rondo::cpu {
namespace {

// Counters handled side by side: enough to keep the multipliers busy.
constexpr int kCounters = kDropoutGroup / 4;

struct Lanes {
  uint32_t word[4][kCounters];
};

// Philox4x32-10 (Salmon et al., SC'11) on kCounters counters in structure-of-arrays form.
inline __attribute__((always_inline)) void philox(Lanes& x, uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kCounters; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * x.word[0][i];
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * x.word[2][i];
      const auto a = static_cast<uint32_t>(p1 >> 32) ^ x.word[1][i] ^ k0;
      const auto b = static_cast<uint32_t>(p0 >> 32) ^ x.word[3][i] ^ k1;
      x.word[0][i] = a;
      x.word[1][i] = static_cast<uint32_t>(p1);
      x.word[2][i] = b;
      x.word[3][i] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

}  // namespace

RONDO_CLONES void draw_mask(const DropoutRow& row, uint32_t threshold, int64_t begin, int64_t count,
                            uint8_t* mask) {
  const auto step_low = static_cast<uint32_t>(row.step), step_high = static_cast<uint32_t>(row.step >> 32);
  for (int64_t e = 0; e < count; e += kDropoutGroup) {
    Lanes x;
    for (int i = 0; i < kCounters; ++i) {
      x.word[0][i] = static_cast<uint32_t>((begin + e) / 4 + i);
      x.word[1][i] = step_high;
      x.word[2][i] = row.row;
      x.word[3][i] = step_low;
    }
    philox(x, row.key[0], row.key[1]);
    for (int i = 0; i < kCounters; ++i) {
      for (int w = 0; w < 4; ++w) mask[e + 4 * i + w] = (x.word[w][i] >> 8) >= threshold ? 1 : 0;
    }
  }
}

}  // namespace rondo::cpu
