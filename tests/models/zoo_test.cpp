// The models of Keras' applications: counts, names, extents.
#include "models/zoo/zoo.h"

#include <gmock/gmock.h>

#include "models/graph/graph.h"
#include "models/graph/graph_network.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Facts {
  const char* name;
  int64_t total, trainable;
  size_t layers;
  int64_t multiply_adds;
};

// Keras' documentation and architecture files.
constexpr Facts kFacts[] = {
    {"xception", 22910480, 22855952, 134, 8357403496},     {"resnet50", 25636712, 25583592, 177, 3857973248},
    {"vgg16", 138357544, 138357544, 23, 15470264320},      {"mobilenet", 4253864, 4231976, 93, 568740352},
    {"inception_v3", 23851784, 23817352, 313, 5713216096},
};

TEST(ImageZoo, CountsAreThoseOfKeras) {
  for (const Facts& facts : kFacts) {
    SCOPED_TRACE(facts.name);
    const auto [input_shape, classes] = zoo::preset(facts.name);
    const Model model = zoo::make(facts.name, input_shape, classes);
    EXPECT_EQ(model.count_params(), facts.total);
    EXPECT_EQ(model.graph().count_params(true), facts.trainable);
    EXPECT_EQ(model.graph().layers().size(), facts.layers);
    EXPECT_EQ(model.graph().multiply_adds(), facts.multiply_adds);
    EXPECT_EQ(model.output_shape(), (Shape{1000}));
    // Nobody asked for the values: they were not drawn.
    for (const Weight* weight : model.graph().weights()) EXPECT_TRUE(weight->host.empty());
  }
}

TEST(ImageZoo, XceptionOnSmallerImages) {
  const Model model = zoo::xception({224, 224, 3});
  EXPECT_EQ(model.count_params(), 22910480);
  EXPECT_EQ(model.graph().multiply_adds(), 4552879072);
}

// The extents of the image behind some layers, and where they stand.
TEST(ImageZoo, BlocksHaveKerasExtentsAndNames) {
  struct Place {
    const char* layer;
    Shape output;
  };
  const auto check = [](const Model& model, const std::vector<Place>& places) {
    for (const Place& place : places) {
      bool found = false;
      for (const auto& node : model.graph().nodes()) {
        if (node->layer->name() != place.layer) continue;
        found = true;
        EXPECT_EQ(node->output, place.output) << place.layer;
      }
      EXPECT_TRUE(found) << model.name() << " has no layer " << place.layer;
    }
  };
  check(zoo::xception(), {{"block1_conv2_act", {147, 147, 64}},
                          {"conv2d", {74, 74, 128}},
                          {"add", {74, 74, 128}},
                          {"block3_sepconv1_act", {74, 74, 128}},
                          {"conv2d_3", {10, 10, 1024}},
                          {"add_2", {19, 19, 728}},
                          {"add_3", {19, 19, 728}},
                          {"add_11", {10, 10, 1024}},
                          {"block14_sepconv2_act", {10, 10, 2048}}});
  check(zoo::resnet50(), {{"conv1_relu", {112, 112, 64}},
                          {"pool1_pool", {56, 56, 64}},
                          {"conv2_block1_0_bn", {56, 56, 256}},
                          {"conv3_block1_1_conv", {28, 28, 128}},
                          {"conv4_block6_out", {14, 14, 1024}},
                          {"conv5_block3_add", {7, 7, 2048}}});
  check(zoo::vgg16(), {{"block5_conv3", {14, 14, 512}}, {"flatten", {25088}}, {"fc2", {4096}}});
  check(zoo::mobilenet(), {{"conv1_relu", {112, 112, 32}},
                           {"conv_pad_2", {113, 113, 64}},
                           {"conv_dw_13_relu", {7, 7, 1024}},
                           {"conv_preds", {1, 1, 1000}}});
  check(zoo::inception_v3(), {{"mixed2", {35, 35, 288}},
                              {"mixed7", {17, 17, 768}},
                              {"mixed9_1", {8, 8, 768}},
                              {"mixed10", {8, 8, 2048}},
                              {"conv2d_93", {8, 8, 192}}});
}

TEST(ImageZoo, SummaryIsKerasTable) {
  const std::string text = zoo::mobilenet().summary();
  EXPECT_THAT(text, HasSubstr("Model: \"mobilenet_1.00_224\""));
  EXPECT_THAT(text, HasSubstr(" conv_dw_1 (DepthwiseConv2D) (None, 112, 112, 32)      288"));
  EXPECT_THAT(text, HasSubstr("Total params: 4,253,864\nTrainable params: 4,231,976\n"
                              "Non-trainable params: 21,888\n"));
  EXPECT_THAT(text, HasSubstr("568,740,352 multiply-adds, 1.137 GFLOPs"));
  EXPECT_THAT(zoo::resnet50().summary(), HasSubstr("['conv2_block1_0_bn[0][0]',"));
}

// On hosts oneDNN's plain loops take a thousand times as long.
TEST(ImageZoo, PlansUseNoReferenceImplementation) {
  for (const auto& [name, extent] : {std::pair{"mobilenet", 64}, std::pair{"xception", 71}}) {
    Model model = zoo::make(name, {extent, extent, 3}, 10);
    model.compile({.optimizer = SGD{}, .loss = "sparse_categorical_crossentropy"});
    const std::string plan = model.network(2).describe(2, Mode::kTraining);
    EXPECT_THAT(plan, HasSubstr("jit")) << name;
    EXPECT_THAT(plan, Not(HasSubstr("ref"))) << name;
  }
}

TEST(ImageZoo, ImagesThatAreTooSmallAreRefused) {
  EXPECT_THROW(zoo::inception_v3({74, 74, 3}), InvalidArgument);
  EXPECT_NO_THROW(zoo::inception_v3({75, 75, 3}));
  EXPECT_NO_THROW(zoo::xception({71, 71, 3}));
  EXPECT_NO_THROW(zoo::resnet50({32, 32, 3}, 10));
  EXPECT_NO_THROW(zoo::mobilenet({32, 32, 3}, 10));
  EXPECT_THROW(zoo::preset("resnet51"), InvalidArgument);
}

}  // namespace
}  // namespace rondo
