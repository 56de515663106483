#include "runtime/data/synthetic.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/base/random.h"

namespace rondo {
namespace {

// Long enough that windows of different classes have little in common, short enough to stay in a core's
// cache.
constexpr size_t kTable = size_t{1} << 15;

enum Stream : uint32_t { kPatternTable, kNoiseTable, kClassWindow, kSample };

RandomKey key(uint64_t seed, Stream stream) {
  return {.seed = seed, .purpose = RandomPurpose::kSynthetic, .stream = stream};
}

std::vector<float> table(uint64_t seed, Stream stream) {
  std::vector<float> values(kTable);
  for (size_t i = 0; i < kTable; i += 4) {
    const auto words = random_words(key(seed, stream), 0, i / 4);
    for (size_t j = 0; j < 4; ++j) values[i + j] = uniform_float(words[j]);
  }
  return values;
}

}  // namespace

SyntheticSource::SyntheticSource(const SyntheticOptions& options) : options_(options) {
  require(options.size > 0, "synthetic data of {} samples; at least one is needed", options.size);
  require(options.input_shape.elements() > 0, "synthetic inputs of shape {} have no elements",
          options.input_shape.text());
  require(options.classes > 0 && options.classes <= std::numeric_limits<int32_t>::max(),
          "synthetic data of {} classes; give 1 to {}", options.classes, std::numeric_limits<int32_t>::max());
  require(options.noise >= 0.0f && options.noise <= 1.0f, "a noise of {}; it must lie between 0 and 1",
          options.noise);
  pattern_ = table(options.seed, kPatternTable);
  noise_ = table(options.seed, kNoiseTable);
}

void SyntheticSource::read(int64_t index, std::span<float> input, std::span<std::byte> label) const {
  const auto sample = random_words(key(options_.seed, kSample), 0, static_cast<uint64_t>(index));
  const auto class_id = static_cast<int32_t>(sample[0] % static_cast<uint64_t>(options_.classes));
  const auto window = random_words(key(options_.seed, kClassWindow), 0, static_cast<uint64_t>(class_id));
  size_t from_pattern = window[0] % kTable;
  size_t from_noise = sample[1] % kTable;
  const float noise = options_.noise;
  for (size_t done = 0; done < input.size();) {  // windows wrap at the end of a table
    const size_t run = std::min({input.size() - done, kTable - from_pattern, kTable - from_noise});
    const float* p = pattern_.data() + from_pattern;
    const float* n = noise_.data() + from_noise;
    float* x = input.data() + done;
    for (size_t i = 0; i < run; ++i) x[i] = (1.0f - noise) * p[i] + noise * n[i];
    done += run;
    from_pattern = (from_pattern + run) % kTable;
    from_noise = (from_noise + run) % kTable;
  }
  std::memcpy(label.data(), &class_id, sizeof class_id);
}

uint64_t SyntheticSource::digest() const {
  const std::string text = fmt::format("synthetic {} {} {} {} {}", options_.size, options_.input_shape.text(),
                                       options_.classes, options_.seed, options_.noise);
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace rondo
