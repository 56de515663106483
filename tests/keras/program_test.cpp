// What `train` does with files: options, and a model that is saved, read again, evaluated and applied.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>

#include "models/files.h"
#include "models/model.h"
#include "models/optimizer_state.h"
#include "models/program/options.h"
#include "runtime/base/error.h"
#include "tests/keras/golden.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

ProgramOptions parse(std::vector<const char*> words) {
  words.insert(words.begin(), "train");
  return parse_options(static_cast<int>(words.size()), words.data());
}

TEST(ModelFileOptions, AreRead) {
  const ModelFileOptions files = parse({"--load", "a.keras", "--load-weights", "b.h5", "--save", "c.h5",
                                        "--save-weights", "d.weights.h5", "--checkpoint", "e-{epoch}.h5"})
                                     .files;
  EXPECT_EQ(files.load, "a.keras");
  EXPECT_EQ(files.load_weights, "b.h5");
  EXPECT_EQ(files.save, "c.h5");
  EXPECT_EQ(files.save_weights, "d.weights.h5");
  EXPECT_EQ(files.checkpoint, "e-{epoch}.h5");
  EXPECT_TRUE(parse({"--load", "a.h5", "--evaluate"}).files.evaluate);
}

TEST(ModelFileOptions, ThatCannotBeAreRefused) {
  const auto expect = [](const std::vector<const char*>& words, const char* text) {
    EXPECT_THAT([&] { parse(words); }, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  expect({"--load", "a.h5", "--model", "cnn"}, "leave --model out");
  expect({"--evaluate"}, "give --load or --load-weights");
  expect({"--load", "a.h5", "--predict", "out.txt"}, "ends with .npy");
  expect({"--load", "a.h5", "--evaluate", "--checkpoint", "b.h5"}, "leave --checkpoint");
  expect({"--save", "model.pt"}, "must end with .h5, .hdf5 or .keras");
  expect({"--save-weights", "model.keras"}, "holds a whole model");
}

int run(const std::string& options, const std::string& output) {
  const std::string command = std::string(RONDO_TRAIN) + " --data synthetic --batch-size 500 --threads 1 " +
                              options + " >" + output + " 2>&1";
  return WEXITSTATUS(std::system(command.c_str()));
}

TEST(Train, SavesLoadsEvaluatesAndPredicts) {
  const test::Folder folder;
  const std::string out = folder.file("out.txt");
  const auto said = [&] { return test::read_text(out); };
  ASSERT_EQ(
      run("--model mlp --epochs 2 --steps-per-epoch 2 --save " + folder.file("m.keras") + " --checkpoint '" +
              folder.file("e{epoch:02d}.h5") + "' --save-weights " + folder.file("w.weights.h5"),
          out),
      0)
      << said();
  EXPECT_THAT(folder.names(), testing::ElementsAre("e01.h5", "e02.h5", "m.keras", "out.txt", "w.weights.h5"));
  const auto trained = load_model(folder.file("m.keras")).get_weights();
  EXPECT_EQ(load_model(folder.file("e02.h5"), {.compile = false}).get_weights(), trained);
  EXPECT_NE(load_model(folder.file("e01.h5"), {.compile = false}).get_weights(), trained);

  ASSERT_EQ(run("--load " + folder.file("e02.h5") + " --evaluate --predict " + folder.file("y.npy"), out), 0)
      << said();
  EXPECT_THAT(said(), AllOf(HasSubstr("loss "), HasSubstr("accuracy ")));
  const std::string npy = test::read_text(folder.file("y.npy"));
  EXPECT_THAT(npy.substr(0, 128), HasSubstr("'shape': (10000, 10,)"));
  EXPECT_EQ(npy.size() % 64, 10'000u * 10 * 4 % 64);

  EXPECT_EQ(run("--load " + folder.file("absent.h5") + " --evaluate", out), 1);
  EXPECT_THAT(said(), HasSubstr("absent.h5: cannot be opened"));
  EXPECT_EQ(run("--model mlp --save " + folder.file("absent/m.h5"), out), 1);
  EXPECT_THAT(said(), AllOf(HasSubstr("absent/m.h5"), HasSubstr("folder that exists"),
                            testing::Not(HasSubstr("epoch 1"))));
  EXPECT_EQ(run("--load " + folder.file("e01.h5") + " --summary", out), 0);
  EXPECT_THAT(said(), HasSubstr("Total params: 669,706"));
}

// Two epochs at once, and one, a file, and another: the same steps with the same optimizer.
TEST(Train, GoesOnWithTheOptimizerOfTheFile) {
  const test::Folder folder;
  const std::string out = folder.file("out.txt");
  const auto said = [&] { return test::read_text(out); };
  const std::string first =
      "--model mlp --optimizer nadam --learning-rate 0.002 --epochs 1 --steps-per-epoch 2 --save ";
  const std::string second = " --epochs 1 --steps-per-epoch 2 --save " + folder.file("after.keras");
  for (const char* name : {"m.h5", "m.keras"}) {
    ASSERT_EQ(run(first + folder.file(name), out), 0) << said();
    ASSERT_EQ(run("--load " + folder.file(name) + second, out), 0) << said();
    Model after = load_model(folder.file("after.keras"));
    EXPECT_EQ(after.optimizer_state().iterations, 4);
    const auto& nadam = std::get<Nadam>(after.compile_options()->optimizer);
    EXPECT_DOUBLE_EQ(nadam.learning_rate, 0.002);
    EXPECT_EQ(std::get<LossConfig>(after.compile_options()->loss.value()).name,
              "sparse_categorical_crossentropy");

    ASSERT_EQ(run("--load " + folder.file(name) + " --learning-rate 0.5" + second, out), 0) << said();
    after = load_model(folder.file("after.keras"));
    EXPECT_EQ(after.optimizer_state().iterations, 4);
    EXPECT_DOUBLE_EQ(std::get<Nadam>(after.compile_options()->optimizer).learning_rate, 0.5);

    ASSERT_EQ(run("--load " + folder.file(name) + " --optimizer sgd" + second, out), 0) << said();
    after = load_model(folder.file("after.keras"));
    EXPECT_EQ(after.optimizer_state().iterations, 2);
    EXPECT_TRUE(std::holds_alternative<SGD>(after.compile_options()->optimizer));
  }
}

}  // namespace
}  // namespace rondo
