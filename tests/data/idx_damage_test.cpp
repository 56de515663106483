// Every truncation of a small file is refused, and no change of its bytes does worse than a FileError.
#include <gmock/gmock.h>

#include <random>

#include "runtime/base/error.h"
#include "runtime/data/formats/idx.h"
#include "tests/data/idx_files.h"

namespace rondo {
namespace {

// Whether the file was accepted. Anything but a FileError that names the path fails the test.
bool accepted(const std::filesystem::path& path) {
  try {
    const IdxArray array = read_idx(path);
    EXPECT_EQ(static_cast<int64_t>(array.data.size()), array.shape.elements() * dtype_size(array.dtype));
    return true;
  } catch (const FileError& e) {
    EXPECT_EQ(std::string(e.what()).find(path.string() + ": "), 0u) << e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "not a FileError: " << e.what();
  }
  return false;
}

class IdxDamage : public testing::TestWithParam<bool> {
 protected:
  std::string content() const {
    const std::string plain = idx_bytes({3, 4, 5});
    return GetParam() ? gzipped(plain) : plain;
  }
  std::filesystem::path write(const std::string& damaged) const {
    return directory_.write(GetParam() ? "x.gz" : "x", damaged);
  }
  TemporaryDirectory directory_;
};

TEST_P(IdxDamage, EveryTruncationIsRefused) {
  const std::string whole = content();
  ASSERT_TRUE(accepted(write(whole)));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(accepted(write(whole.substr(0, length)))) << length << " bytes of " << whole.size();
  }
}

TEST_P(IdxDamage, EveryByteChangedIsHandled) {
  const std::string whole = content();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ change);
      accepted(write(damaged));
    }
  }
}

TEST_P(IdxDamage, RandomChangesAreHandled) {
  const std::string whole = content();
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[at] = static_cast<char>(random());
          break;
        case 1:
          damaged.erase(at, 1 + random() % 3);
          break;
        default:
          damaged.insert(at, 1 + random() % 3, static_cast<char>(random()));
          break;
      }
      if (damaged.empty()) damaged = "x";
    }
    accepted(write(damaged));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, IdxDamage, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Gzip" : "Plain"; });

}  // namespace
}  // namespace rondo
