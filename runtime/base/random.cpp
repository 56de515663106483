#include "runtime/base/random.h"

#include <Random123/philox.h>

#include <numeric>
#include <utility>

namespace rondo {
namespace {

__extension__ using Uint128 = unsigned __int128;

}  // namespace

std::array<uint32_t, 2> philox_key(const RandomKey& key) {
  // The seed fills both words; purpose and stream are mixed in by one Philox round trip, so that keys that
  // differ in any part give unrelated streams.
  r123::Philox4x32 philox;
  const r123::Philox4x32::ctr_type tag{{static_cast<uint32_t>(key.purpose), key.stream, 0x526f6e64u, 0x6fu}};
  const r123::Philox4x32::key_type seed{
      {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)}};
  const auto mixed = philox(tag, seed);
  return {mixed[0], mixed[1]};
}

std::array<uint32_t, 4> random_words(const RandomKey& key, uint64_t high, uint64_t low) {
  r123::Philox4x32 philox;
  const auto words = philox_key(key);
  const r123::Philox4x32::ctr_type counter{{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                                            static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)}};
  const auto out = philox(counter, r123::Philox4x32::key_type{{words[0], words[1]}});
  return {out[0], out[1], out[2], out[3]};
}

std::vector<int64_t> random_permutation(const RandomKey& key, int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  random_permutation(key, std::span(order));
  return order;
}

void random_permutation(const RandomKey& key, std::span<int64_t> order) {
  std::iota(order.begin(), order.end(), int64_t{0});
  r123::Philox4x32 philox;
  const auto words = philox_key(key);
  const r123::Philox4x32::key_type philox_words{{words[0], words[1]}};
  for (int64_t i = static_cast<int64_t>(order.size()) - 1; i > 0; --i) {
    // Lemire's multiply-shift with rejection: unbiased for every bound below 2^64.
    const auto bound = static_cast<uint64_t>(i) + 1;
    const uint64_t threshold = (0 - bound) % bound;
    uint64_t pick = 0;
    for (uint32_t attempt = 0;; ++attempt) {
      const r123::Philox4x32::ctr_type counter{
          {static_cast<uint32_t>(i), static_cast<uint32_t>(static_cast<uint64_t>(i) >> 32), attempt, 0}};
      const auto out = philox(counter, philox_words);
      const uint64_t draw = (static_cast<uint64_t>(out[0]) << 32) | out[1];
      const auto product = static_cast<Uint128>(draw) * bound;
      if (static_cast<uint64_t>(product) >= threshold) {
        pick = static_cast<uint64_t>(product >> 64);
        break;
      }
    }
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(pick)]);
  }
}

}  // namespace rondo
