// Damaged files: every one is read, or refused with a FileError that names it, in bounded time.
#include <gmock/gmock.h>

#include <random>

#include "models/files.h"
#include "models/keras/helper_process.h"
#include "models/model.h"
#include "runtime/base/error.h"
#include "tests/keras/golden.h"

namespace rondo {
namespace {

using testing::HasSubstr;

// A few changes of one kind; a pure function of the seed.
std::string damaged(std::string bytes, uint32_t seed) {
  std::mt19937 random(seed);
  const auto place = [&] { return random() % bytes.size(); };
  switch (random() % 5) {
    case 0:  // bits
      for (uint32_t i = 0; i <= random() % 8; ++i) bytes[place()] ^= static_cast<char>(1u << random() % 8);
      break;
    case 1:  // bytes at the beginning, where the structure is
      for (uint32_t i = 0; i <= random() % 4; ++i) bytes[place() % 4096] = static_cast<char>(random());
      break;
    case 2:
      bytes.resize(place());
      break;
    case 3: {  // a run of ones or zeros
      const size_t first = place();
      const size_t size = std::min<size_t>(1 + random() % 64, bytes.size() - first);
      bytes.replace(first, size, size, random() % 2 == 0 ? '\0' : '\xff');
      break;
    }
    default: {  // a piece moved
      const std::string piece = bytes.substr(place(), 1 + random() % 32);
      bytes.insert(place(), piece);
      break;
    }
  }
  return bytes;
}

struct Outcome {
  int good = 0;
  int refused = 0;
};

Outcome read_damaged(const std::string& name, uint32_t mutants) {
  const test::Folder folder;
  const std::string whole = test::read_text(test::golden(name));
  const std::string path = folder.file(name);
  Outcome outcome;
  for (uint32_t seed = 0; seed < mutants; ++seed) {
    test::write_text(path, damaged(whole, seed));
    try {
      load_model(path);
      ++outcome.good;
    } catch (const FileError& error) {
      ++outcome.refused;
      EXPECT_THAT(error.what(), HasSubstr(name)) << "seed " << seed;
    }
  }
  return outcome;
}

TEST(Damage, OfHdf5) {
  const Outcome outcome = read_damaged("mlp.tf.h5", 120);
  EXPECT_GT(outcome.refused, 20);
  EXPECT_GT(outcome.good, 5);
}

TEST(Damage, OfArchives) {
  const Outcome outcome = read_damaged("mlp.k3.keras", 80);
  EXPECT_GT(outcome.refused, 20);
}

TEST(Damage, OfJson) {
  int refused = 0;
  for (const char* name : {"graph.tf.json", "graph.k3.json", "chain_of_images.k3.json"}) {
    const std::string whole = test::read_text(test::golden(name));
    for (uint32_t seed = 0; seed < 400; ++seed) {
      try {
        model_from_json(damaged(whole, seed));
      } catch (const FileError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 300);
}

// Inputs that fuzzing (tests/fuzz) found to be refused as something else than a damaged file.
TEST(Damage, OfTheTrainingConfiguration) {
  const test::Folder folder;
  keras::FileContent content = keras::read_file(test::golden("trained_adam.tf.h5"));
  for (const char* text : {R"({"loss":"mse","optimizer":"categorical_crossentropy"})",
                           R"({"loss":"mse","optimizer_config":{"class_name":"Adm","config":{}}})"}) {
    content.root.attributes["training_config"].values = {text};
    keras::write_file(folder.file("m.h5"), keras::Container::kH5, content);
    EXPECT_THAT([&] { load_model(folder.file("m.h5")); },
                testing::ThrowsMessage<FileError>(testing::AllOf(HasSubstr("m.h5: training_config.optimizer"),
                                                                 HasSubstr("unknown optimizer"))));
  }
}

}  // namespace
}  // namespace rondo
