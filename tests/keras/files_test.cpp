// Saving and loading: names, errors that say what does not fit, files that are whole or not there at all.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>

#include "models/files.h"
#include "models/keras/helper_process.h"
#include "models/keras/json.h"
#include "models/keras/weight_layout.h"
#include "models/layers/convolution.h"
#include "models/layers/core.h"
#include "models/layers/normalization.h"
#include "models/model.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "tests/keras/golden.h"

namespace rondo {
namespace {

using test::Folder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Model dense(int64_t units, uint64_t seed = 0, int64_t inputs = 3) {
  return Sequential({layers::Input({.shape = {inputs}}), layers::Dense{.units = units, .name = "first"},
                     layers::BatchNormalization{.name = "norm"}, layers::Dense{.units = 2, .name = "last"}},
                    {.name = "dense", .seed = seed});
}

TEST(Files, KeepWeightsStructureAndTraining) {
  const Folder folder;
  Model model = dense(4);
  model.compile({.optimizer = Adam{.learning_rate = 0.25, .clip = {.clipvalue = 2.0}},
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  model.save(folder.file("m.h5"));
  const Model again = load_model(folder.file("m.h5"));
  EXPECT_EQ(again.name(), "dense");
  EXPECT_EQ(again.get_weights(), model.get_weights());
  EXPECT_EQ(again.to_json(), model.to_json());
  Model third = again;
  third.save(folder.file("again.h5"));
  const auto one = keras::read_file(folder.file("m.h5"));
  const auto two = keras::read_file(folder.file("again.h5"));
  EXPECT_EQ(one.root.attributes.at("training_config").values,
            two.root.attributes.at("training_config").values);
}

// Through every file and dialect; what Keras cannot say becomes what the comments of optimizer_config.h tell.
TEST(Files, KeepOptimizersAndSchedules) {
  const Folder folder;
  const std::vector<std::pair<OptimizerConfig, OptimizerConfig>> all{
      {SGD{.momentum = 0.5, .decay = 0.25}, SGD{.momentum = 0.5, .schedule = {InverseTimeSchedule{1, 0.25}}}},
      {RMSprop{.schedule = {ExponentialSchedule{5, 0.5, true}}}, {}},
      {Adam{.amsgrad = true, .schedule = {PolynomialSchedule{7, 0.125, 2.0, true}}}, {}},
      {Adagrad{.schedule = {PiecewiseSchedule{{2, 5}, {0.001, 0.5, 0.25}}}}, {}},
      {AdamW{.weight_decay = 0.5, .schedule = {CosineSchedule{9, 0.25, 0.5, 3}}}, {}},
      {Nadam{.schedule = {InverseTimeSchedule{3, 0.5}}, .clip = {.global_clipnorm = 2.0}}, {}},
      {Adadelta{.schedule = {ConstantSchedule{}, 5}}, Adadelta{}},  // no warm-up in Keras
  };
  for (const auto& [optimizer, read] : all) {
    for (const auto dialect : {KerasDialect::kTfKeras, KerasDialect::kKeras3}) {
      for (const char* name : {"m.h5", "m.keras"}) {
        Model model = dense(4);
        model.compile(
            {.optimizer = optimizer, .loss = {"categorical_crossentropy", {.label_smoothing = 0.25}}});
        model.save(folder.file(name), {.dialect = dialect});
        const Model again = load_model(folder.file(name));
        const OptimizerConfig& got = again.compile_options()->optimizer;
        const bool as_it_was = describe(got) == describe(optimizer);
        const bool as_keras = read.index() == optimizer.index() && describe(got) == describe(read);
        EXPECT_TRUE(as_it_was || as_keras) << describe(got) << " instead of " << describe(optimizer);
        const auto& loss = std::get<LossConfig>(again.compile_options()->loss.value());
        EXPECT_EQ(loss.label_smoothing, 0.25);
        EXPECT_EQ(loss.name, "categorical_crossentropy");
      }
    }
  }
}

TEST(Files, NameTheFirstWeightThatDoesNotFitAndChangeNothing) {
  const Folder folder;
  dense(4).save_weights(folder.file("four.h5"));
  dense(4).save_weights(folder.file("four.weights.h5"));
  Model five = dense(5, 1);
  const auto before = five.get_weights();
  EXPECT_THAT([&] { five.load_weights(folder.file("four.h5")); },
              ThrowsMessage<FileError>(AllOf(HasSubstr("four.h5: layer \"first\""), HasSubstr("(3, 4)"),
                                             HasSubstr("(3, 5)"), HasSubstr("first/kernel:0"))));
  EXPECT_THAT(
      [&] { five.load_weights(folder.file("four.weights.h5")); },
      ThrowsMessage<FileError>(AllOf(HasSubstr("layers/dense"), HasSubstr("(3, 4)"), HasSubstr("(3, 5)"))));
  Model shorter = Sequential({layers::Input({.shape = {3}}), layers::Dense{.units = 4}});
  EXPECT_THAT([&] { shorter.load_weights(folder.file("four.h5")); },
              ThrowsMessage<FileError>(HasSubstr("has 3 layers with weights, the model has 1")));
  EXPECT_EQ(five.get_weights(), before);
}

TEST(Files, HaveNamesThatSayWhatTheyAre) {
  Model model = dense(4);
  EXPECT_THAT([&] { model.save("model.pt"); }, ThrowsMessage<InvalidArgument>(HasSubstr(".keras")));
  EXPECT_THAT([&] { model.save("model.weights.h5"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("weights alone")));
  EXPECT_THAT([&] { model.save_weights("model.keras"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("whole model")));
}

TEST(Files, SayWhatIsNoFileOfKeras) {
  const Folder folder;
  Model model = dense(4);
  test::write_text(folder.file("text.h5"), "hello");
  test::write_text(folder.file("empty.h5"), "");
  EXPECT_THAT([&] { load_model(folder.file("text.h5")); },
              ThrowsMessage<FileError>(AllOf(HasSubstr("text.h5: is neither an HDF5 file"))));
  EXPECT_THAT([&] { load_model(folder.file("empty.h5")); }, ThrowsMessage<FileError>(HasSubstr("(0 bytes)")));
  EXPECT_THAT([&] { load_model(folder.file("absent.h5")); },
              ThrowsMessage<FileError>(HasSubstr("No such file")));
  EXPECT_THAT([&] { load_model(folder.file(".")); },
              ThrowsMessage<FileError>(HasSubstr("not a regular file")));
  ASSERT_EQ(mkfifo(folder.file("fifo").c_str(), 0600), 0);
  EXPECT_THAT([&] { load_model(folder.file("fifo")); },
              ThrowsMessage<FileError>(HasSubstr("not a regular file")));
  model.save_weights(folder.file("w.h5"));
  EXPECT_THAT([&] { load_model(folder.file("w.h5")); },
              ThrowsMessage<FileError>(HasSubstr("has no attribute model_config")));
}

// A limit of file size stands for a full disk.
TEST(Files, AreReplacedAsAWholeOrNotAtAll) {
  const Folder folder;
  Model model = dense(4);
  model.save(folder.file("m.h5"));
  model.save(folder.file("m.keras"));
  ASSERT_EQ(chmod(folder.file("m.h5").c_str(), 0640), 0);
  const std::string before = test::read_text(folder.file("m.h5"));
  Model large = dense(400'000);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4 << 20, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const char* name : {"m.h5", "m.keras", "new.h5"}) {
    EXPECT_THAT([&] { large.save(folder.file(name)); }, ThrowsMessage<FileError>(HasSubstr(name)));
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(test::read_text(folder.file("m.h5")), before);
  EXPECT_THAT(folder.names(), ElementsAre("m.h5", "m.keras"));
  EXPECT_EQ(load_model(folder.file("m.keras")).get_weights(), model.get_weights());

  dense(6).save(folder.file("m.h5"));
  EXPECT_EQ(load_model(folder.file("m.h5")).get_weights().size(), 8u);
  struct stat status {};
  ASSERT_EQ(stat(folder.file("m.h5").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(Files, SurviveAHelperThatDies) {
  const Folder folder;
  Model model = dense(4);
  model.save(folder.file("m.h5"));
  ASSERT_EQ(setenv("RONDO_FILE_HELPER", "/bin/false", 1), 0);
  EXPECT_THAT([&] { load_model(folder.file("m.h5")); }, ThrowsMessage<FileError>(HasSubstr("m.h5")));
  EXPECT_THAT([&] { dense(5).save(folder.file("m.h5")); }, ThrowsMessage<FileError>(HasSubstr("m.h5")));
  ASSERT_EQ(setenv("RONDO_FILE_HELPER", "/does/not/exist", 1), 0);
  EXPECT_THAT([&] { load_model(folder.file("m.h5")); },
              ThrowsMessage<FileError>(HasSubstr("cannot be started from /does/not/exist")));
  ASSERT_EQ(setenv("RONDO_FILE_HELPER", "/bin/sleep", 1), 0);  // ends at once: "read" is no time
  EXPECT_THROW(load_model(folder.file("m.h5")), FileError);
  ASSERT_EQ(unsetenv("RONDO_FILE_HELPER"), 0);
  EXPECT_EQ(load_model(folder.file("m.h5")).get_weights(), model.get_weights());
  EXPECT_THAT(folder.names(), ElementsAre("m.h5"));
}

TEST(Files, AreReadWithinLimits) {
  const std::string file = test::golden("graph.tf.h5");
  EXPECT_THAT([&] { keras::read_file(file, {.memory_bytes = int64_t{24} << 20}); },
              ThrowsMessage<FileError>(HasSubstr("graph.tf.h5")));
  EXPECT_THAT([&] { keras::read_file(file, {.seconds = 1e-6}); },
              ThrowsMessage<FileError>(HasSubstr("took more than")));
}

TEST(Files, OfAParallelModelAreWrittenByTheFirstRank) {
  const Folder folder;
  run_ranks(2, [&](Communicator& comm) {
    const auto device = make_cpu_device(1);
    const auto backend = make_cpu_backend(*device);
    Model model = dense(4);
    Model parallel = multi_gpu_model(model, comm, *backend);
    model.save(folder.file("template.h5"));
    parallel.save_weights(folder.file("parallel.h5"));
    Model other = dense(4, 7);
    Model other_parallel = multi_gpu_model(other, comm, *backend);
    other_parallel.load_weights(folder.file("template.h5"));
    EXPECT_EQ(other.get_weights(), model.get_weights());
    EXPECT_THAT([&] { model.save(folder.file("absent/m.h5")); },
                ThrowsMessage<FileError>(HasSubstr("give a path in a folder that exists")));
    EXPECT_THAT([&] { other.load_weights(folder.file("absent.h5")); },
                ThrowsMessage<FileError>(HasSubstr("No such file")));
  });
  EXPECT_THAT(folder.names(), ElementsAre("parallel.h5", "template.h5"));
}

TEST(Lists, LongerThanAnAttributeLieInPieces) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back(std::to_string(i) + std::string(200, 'x'));
  keras::FileContent content;
  keras::put_list(content.root, "weight_names", names);
  keras::put_list(content.root, "none", {});
  EXPECT_EQ(content.root.attributes.size(), 5u);
  const Folder folder;
  keras::write_file(folder.file("lists.h5"), keras::Container::kH5, content);
  const keras::FileContent read = keras::read_file(folder.file("lists.h5"));
  EXPECT_EQ(keras::take_list(read.root, "weight_names", ""), names);
  EXPECT_THAT(keras::take_list(read.root, "none", ""), testing::IsEmpty());
  EXPECT_THAT([&] { keras::take_list(read.root, "others", "f.h5"); },
              ThrowsMessage<FileError>(HasSubstr("f.h5: has no attribute others")));
  EXPECT_THROW(keras::put_list(content.root, "long", {std::string(70'000, 'x')}), InvalidArgument);
}

TEST(Json, IsBounded) {
  const auto parse = [](const std::string& text) { return keras::parse_json(text, "m.json"); };
  EXPECT_THAT([&] { parse(std::string(200, '[')); }, ThrowsMessage<FileError>(HasSubstr("deeper than 100")));
  EXPECT_THAT([&] { parse(std::string(17 << 20, ' ')); }, ThrowsMessage<FileError>(HasSubstr("16 MiB")));
  EXPECT_THAT([&] { parse("{\"a\":1,\"a\":2}"); },
              ThrowsMessage<FileError>(HasSubstr("\"a\" is there twice")));
  EXPECT_THAT([&] { parse("{\"a\":"); }, ThrowsMessage<FileError>(HasSubstr("m.json: is not JSON at byte")));
  std::string many = "{";
  for (int i = 0; i < 600; ++i) many += "\"" + std::to_string(i) + "\":0,";
  EXPECT_THAT([&] { parse(many + "\"z\":0}"); }, ThrowsMessage<FileError>(HasSubstr("512 keys")));
  EXPECT_EQ(keras::to_json(parse("[null,true,-3,0.5,\"\\u00e9\",{\"b\":1,\"a\":[]}]")),
            "[null,true,-3,0.5,\"\xc3\xa9\",{\"b\":1,\"a\":[]}]");
}

// A model of Dense layers "a", "b", ..., each called on the one that is named.
std::string functional(const std::string& layers, const std::string& ends = R"([["b",0,0]])") {
  return R"({"class_name":"Functional","config":{"name":"m","layers":[)" + layers +
         R"(],"input_layers":[["x",0,0]],"output_layers":)" + ends + "}}";
}
std::string dense_layer(const std::string& name, const std::string& from, const std::string& units = "2") {
  return R"({"class_name":"Dense","config":{"name":")" + name + R"(","units":)" + units + R"(},"name":")" +
         name + R"(","inbound_nodes":[[[")" + from + R"(",0,0,{}]]]})";
}
const std::string kInput =
    R"({"class_name":"InputLayer","config":{"batch_input_shape":[null,3],"name":"x"},"name":"x","inbound_nodes":[]},)";

TEST(Structure, ErrorsNameThePlace) {
  const auto expect = [](const std::string& json, const std::string& text) {
    EXPECT_THAT([&] { model_from_json(json); }, ThrowsMessage<FileError>(HasSubstr(text))) << json;
  };
  EXPECT_EQ(model_from_json(functional(kInput + dense_layer("b", "x"))).count_params(), 8);
  // In any order.
  EXPECT_EQ(model_from_json(functional(dense_layer("b", "a") + "," + dense_layer("a", "x") + "," +
                                       kInput.substr(0, kInput.size() - 1)))
                .count_params(),
            14);
  expect(functional(kInput + dense_layer("a", "b") + "," + dense_layer("b", "a")),
         "layers[1]: layer \"a\" depends on its own output");
  expect(functional(kInput + dense_layer("b", "y")), "there is no layer named \"y\"");
  expect(functional(kInput + dense_layer("b", "x", "-2")), "units > 0");
  expect(functional(kInput + dense_layer("b", "x", "\"two\"")),
         "the model's JSON.config.layers[1].config.units: expected a whole number, got \"two\"");
  expect(functional(kInput + dense_layer("b", "x", "4611686018427387904")), "between -2^31 and 2^31");
  expect(functional(kInput + dense_layer("a", "x", "2147483647") + "," + dense_layer("b", "a", "2147483647")),
         "more than 2^36 elements");
  expect(functional(kInput + dense_layer("b", "x") + "," + dense_layer("b", "x")),
         "a second layer is named \"b\"");
  expect(functional(kInput + dense_layer("b", "x"), R"([["b",1,0]])"), "asks for call 1 of layer \"b\"");
  expect(functional(kInput + dense_layer("b", "x"), R"([["b",0,3]])"), "several outputs");
  expect(functional(kInput + dense_layer("b", "x"), "[]"), "expected at least one layer");
  expect(functional(R"({"class_name":"Lambda","config":{},"name":"l","inbound_nodes":[]})"),
         "layers of class \"Lambda\" are not supported");
  expect(R"({"class_name":"Model"})", "has no \"config\"");
  expect("[]", "expected an object");
  expect(R"({"class_name":"Sequential","config":{"name":"s","layers":[]}})", "1 to 10000 layers");
  expect(R"({"class_name":"Sequential","config":{"layers":[{"class_name":"Flatten","config":{}}]}})",
         "no layer says what shape the input has");
  std::string many = kInput;
  for (int i = 0; i < 10'001; ++i) {
    if (i > 0) many += ",";
    many += dense_layer("d" + std::to_string(i), i == 0 ? "x" : "d" + std::to_string(i - 1));
  }
  expect(functional(many), "1 to 10000 layers");
}

TEST(Structure, BoundsModelsInModels) {
  std::string inner = R"({"class_name":"Sequential","config":{"name":"m","layers":[)"
                      R"({"class_name":"Flatten","config":{"name":"f","batch_input_shape":[null,2]}}]}})";
  for (int i = 0; i < 20; ++i) {
    std::string outer = R"({"class_name":"Sequential","config":{"name":"m)" + std::to_string(i) +
                        R"(","build_input_shape":[null,2],"layers":[)";
    inner = outer + inner + "," + inner + "]}}";
    if (inner.size() > 1'000'000) break;
  }
  EXPECT_THROW(model_from_json(inner), FileError);
}

TEST(Structure, ReadsKerasTwoTwo) {
  // As Keras 2.2 wrote it: no Input, initializers by their parameters, a list of layers alone.
  const Model model = model_from_json(
      R"({"class_name":"Sequential","config":[{"class_name":"Dense","config":{"name":"dense_1","trainable":true,)"
      R"("batch_input_shape":[null,4],"dtype":"float32","units":3,"activation":"softmax","use_bias":true,)"
      R"("kernel_initializer":{"class_name":"VarianceScaling","config":{"scale":1.0,"mode":"fan_avg",)"
      R"("distribution":"uniform","seed":null}},"bias_initializer":{"class_name":"Zeros","config":{}},)"
      R"("kernel_regularizer":null}}],"keras_version":"2.2.0","backend":"tensorflow"})");
  EXPECT_EQ(model.count_params(), 15);
  EXPECT_THAT(model.to_json(), HasSubstr("GlorotUniform"));
}

}  // namespace
}  // namespace rondo
