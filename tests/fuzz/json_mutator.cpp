// Changes JSON texts as values, not as bytes, so that most of them still parse and the code behind the parser
// gets to see them.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph/config.h"
#include "models/keras/json.h"
#include "runtime/base/error.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace {

using namespace rondo;

using Random = std::minstd_rand;

void collect(const ConfigValue& value, std::vector<const ConfigValue*>& all) {
  all.push_back(&value);
  if (const ConfigList* list = value.as<ConfigList>()) {
    for (const ConfigValue& entry : *list) collect(entry, all);
  } else if (const Config* config = value.as<Config>()) {
    for (const ConfigEntry& entry : config->entries()) collect(entry.value, all);
  }
}

ConfigValue plain_value(Random& random) {
  switch (random() % 6) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2: {
      constexpr std::array<int64_t, 10> kNumbers{0,         1,        -1, 2, 3, 7, 65536, int64_t{1} << 31,
                                                 INT64_MAX, INT64_MIN};
      return kNumbers[random() % kNumbers.size()];
    }
    case 3: {
      constexpr std::array<double, 6> kNumbers{0.5, -0.5, 1e-300, 1e300, 1.0, 3.7};
      return kNumbers[random() % kNumbers.size()];
    }
    case 4:
      return ConfigList{};
    default:
      return Config{};
  }
}

// A list with an entry more or less, an object with a key less, or with another key's value.
ConfigValue rearranged(const ConfigValue& value, const ConfigValue& other, Random& random) {
  if (const ConfigList* list = value.as<ConfigList>()) {
    ConfigList changed = *list;
    const auto at = changed.begin() + static_cast<ptrdiff_t>(random() % (changed.size() + 1));
    if (random() % 2 == 0 || at == changed.end()) {
      changed.insert(at, other);
    } else {
      changed.erase(at);
    }
    return changed;
  }
  if (const Config* config = value.as<Config>(); config != nullptr && !config->entries().empty()) {
    const auto& entries = config->entries();
    if (random() % 2 == 0) {
      Config changed = *config;
      changed.set(entries[random() % entries.size()].key, entries[random() % entries.size()].value);
      return changed;
    }
    const size_t left_out = random() % entries.size();
    Config changed;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i != left_out) changed.set(entries[i].key, entries[i].value);
    }
    return changed;
  }
  return other;
}

ConfigValue replaced(const ConfigValue& value, const ConfigValue* target, const ConfigValue& by) {
  if (&value == target) return by;
  if (const ConfigList* list = value.as<ConfigList>()) {
    ConfigList changed;
    for (const ConfigValue& entry : *list) changed.push_back(replaced(entry, target, by));
    return changed;
  }
  if (const Config* config = value.as<Config>()) {
    Config changed;
    for (const ConfigEntry& entry : config->entries()) {
      changed.set(entry.key, replaced(entry.value, target, by));
    }
    return changed;
  }
  return value;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  Random random(seed + 1);
  if (random() % 4 == 0) return LLVMFuzzerMutate(data, size, most);
  try {
    ConfigValue value = keras::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      std::vector<const ConfigValue*> all;
      collect(value, all);
      const ConfigValue* target = all[random() % all.size()];
      const ConfigValue& other = *all[random() % all.size()];
      const unsigned kind = random() % 3;
      const ConfigValue by = kind == 0   ? plain_value(random)
                             : kind == 1 ? other
                                         : rearranged(*target, other, random);
      value = replaced(value, target, by);
    }
    const std::string text = keras::to_json(value);
    if (text.size() > most) return LLVMFuzzerMutate(data, size, most);
    std::memcpy(data, text.data(), text.size());
    return text.size();
  } catch (const Error&) {
    return LLVMFuzzerMutate(data, size, most);
  }
}
