// Construction: names, order, shapes, counts, the summary, and what is refused.
#include "models/graph/graph.h"

#include <gmock/gmock.h>

#include "models/rondo.h"

namespace rondo {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> layer_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& layer : graph.layers()) names.push_back(layer->name());
  return names;
}

TEST(Graph, NamesLayersAsKerasDoes) {
  const auto in = layers::Input({.shape = {8, 8, 3}});
  auto x = layers::Conv2D{.filters = 4, .kernel_size = {3, 3}}(in);
  x = layers::Conv2D{.filters = 4, .kernel_size = {3, 3}}(x);
  x = layers::MaxPooling2D{}(x);
  x = layers::BatchNormalization{}(x);
  x = layers::GlobalAveragePooling2D{}(x);
  x = layers::Dense{.units = 2, .name = "dense"}(x);
  const auto out = layers::Dense{.units = 2}(x);
  const Graph graph({in}, {out}, 0);
  EXPECT_THAT(layer_names(graph),
              ElementsAre("input_1", "conv2d", "conv2d_1", "max_pooling2d", "batch_normalization",
                          "global_average_pooling2d", "dense", "dense_1"));
  std::vector<std::string> parameters;
  for (const Parameter* parameter : graph.parameters()) parameters.push_back(parameter->name);
  EXPECT_THAT(parameters,
              ElementsAre("conv2d/kernel", "conv2d/bias", "conv2d_1/kernel", "conv2d_1/bias",
                          "batch_normalization/gamma", "batch_normalization/beta",
                          "batch_normalization/moving_mean", "batch_normalization/moving_variance",
                          "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"));
  EXPECT_EQ(graph.count_params() - graph.count_params(true), 8);
}

TEST(Graph, OrdersLayersByDepth) {
  const auto a = layers::Input({.shape = {4}, .name = "a"});
  const auto b = layers::Input({.shape = {4}, .name = "b"});
  const auto left =
      layers::Dense{.units = 3, .name = "left_2"}(layers::Dense{.units = 3, .name = "left_1"}(a));
  const auto right = layers::Dense{.units = 3, .name = "right"}(b);
  const auto out = layers::Add{.name = "sum"}({left, right});
  const Graph graph({a, b}, {out}, 0);
  EXPECT_THAT(layer_names(graph), ElementsAre("a", "left_1", "b", "left_2", "right", "sum"));
}

TEST(Graph, SharedLayersCountOnce) {
  const auto a = layers::Input({.shape = {4}});
  const auto b = layers::Input({.shape = {4}});
  const layers::Dense tower{.units = 3};
  const auto out = layers::Concatenate{}({tower(a), tower(b)});
  const Graph graph({a, b}, {out}, 0);
  EXPECT_EQ(graph.count_params(), 15);
  EXPECT_EQ(out.shape(), Shape({6}));
  // A copy of the options is another layer.
  const layers::Dense copy = tower;
  const Graph both({a}, {layers::Concatenate{}({tower(a), copy(a)})}, 0);
  EXPECT_EQ(both.count_params(), 30);
}

TEST(Graph, SeveralOutputsCanBeBuilt) {
  const auto in = layers::Input({.shape = {4}});
  const auto x = layers::Dense{.units = 3}(in);
  const auto y = layers::Dense{.units = 2}(x);
  Model model({in}, {x, y});
  EXPECT_EQ(model.count_params(), 15 + 8);
  EXPECT_EQ(model.graph().outputs()[0].shape(), Shape({3}));
  EXPECT_EQ(model.graph().outputs()[1].shape(), Shape({2}));
}

TEST(Graph, RefusesBrokenGraphs) {
  const auto a = layers::Input({.shape = {4}, .name = "a"});
  const auto b = layers::Input({.shape = {4}, .name = "b"});
  const auto x = layers::Dense{.units = 3}(a);
  EXPECT_THAT(
      [&] {
        Graph({b}, {layers::Add{}({a, b})}, 0);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"a\""), HasSubstr("not listed"))));
  EXPECT_THAT([&] { Graph({a, b}, {x}, 0); }, ThrowsMessage<InvalidArgument>(HasSubstr("no output")));
  EXPECT_THAT([&] { Graph({x}, {x}, 0); }, ThrowsMessage<InvalidArgument>(HasSubstr("layers::Input")));
  EXPECT_THAT([&] { Graph({a, a}, {x}, 0); }, ThrowsMessage<InvalidArgument>(HasSubstr("twice")));
  EXPECT_THROW(Graph({a}, {}, 0), InvalidArgument);
  EXPECT_THROW(Graph({}, {x}, 0), InvalidArgument);
  const auto twins =
      layers::Add{}({layers::Dense{.units = 3, .name = "d"}(a), layers::Dense{.units = 3, .name = "d"}(a)});
  EXPECT_THAT([&] { Graph({a}, {twins}, 0); }, ThrowsMessage<InvalidArgument>(HasSubstr("\"d\"")));
}

TEST(Shapes, FollowKeras) {
  const auto image = layers::Input({.shape = {28, 27, 4}});
  const auto conv = [&](std::string padding, int64_t k, int64_t s, int64_t d) {
    return layers::Conv2D{.filters = 6,
                          .kernel_size = {k, k},
                          .strides = {s, s},
                          .padding = std::move(padding),
                          .dilation_rate = {d, d}}(image)
        .shape();
  };
  EXPECT_EQ(conv("valid", 3, 1, 1), Shape({26, 25, 6}));
  EXPECT_EQ(conv("valid", 3, 2, 1), Shape({13, 13, 6}));
  EXPECT_EQ(conv("same", 3, 2, 1), Shape({14, 14, 6}));
  EXPECT_EQ(conv("valid", 3, 1, 2), Shape({24, 23, 6}));
  EXPECT_EQ(layers::MaxPooling2D{}(image).shape(), Shape({14, 13, 4}));
  EXPECT_EQ(
      (layers::AveragePooling2D{.pool_size = {3, 3}, .strides = {2, 2}, .padding = "same"}(image).shape()),
      Shape({14, 14, 4}));
  EXPECT_EQ(layers::GlobalAveragePooling2D{}(image).shape(), Shape({4}));
  EXPECT_EQ(layers::GlobalMaxPooling2D{.keepdims = true}(image).shape(), Shape({1, 1, 4}));
  EXPECT_EQ(layers::Flatten{}(image).shape(), Shape({28 * 27 * 4}));
  EXPECT_EQ(layers::Dense{.units = 5}(image).shape(), Shape({28, 27, 5}));
  EXPECT_EQ(layers::Concatenate{.axis = 1}({image, image}).shape(), Shape({56, 27, 4}));
  EXPECT_EQ(layers::Concatenate{}({image, image}).shape(), Shape({28, 27, 8}));
}

TEST(Shapes, ErrorsNameTheLayerWhatItGotAndWhatItNeeds) {
  const auto rows = layers::Input({.shape = {10}});
  const auto image = layers::Input({.shape = {8, 8, 3}});
  EXPECT_THAT(
      [&] {
        layers::Conv2D({.filters = 4, .kernel_size = {3, 3}, .name = "c"})(rows);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("Conv2D layer \"c\""),
                                           HasSubstr("(height, width, channels)"), HasSubstr("(10,)"))));
  EXPECT_THAT(
      [&] {
        layers::Conv2D({.filters = 4, .kernel_size = {9, 9}})(image);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("Conv2D"), HasSubstr("9"), HasSubstr("(8, 8, 3)"))));
  EXPECT_THAT(
      [&] {
        layers::Conv2D({.filters = 4, .kernel_size = {3, 3}, .groups = 2})(image);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("3 channels"), HasSubstr("2 groups"))));
  EXPECT_THAT([&] { layers::Conv2D({.filters = 4, .padding = "full"})(image); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"full\""), HasSubstr("\"same\""))));
  EXPECT_THROW(layers::Conv2D({.filters = 0})(image), InvalidArgument);
  EXPECT_THROW(layers::Conv2D({.filters = 4, .kernel_size = {0, 1}})(image), InvalidArgument);
  EXPECT_THROW(layers::Conv2D({.filters = 4, .strides = {2, 2}, .dilation_rate = {2, 2}})(image),
               InvalidArgument);
  EXPECT_THAT([&] { layers::Dense({.units = 4, .activation = "rleu"})(rows); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"rleu\""), HasSubstr("relu, sigmoid"))));
  EXPECT_THROW(layers::Dense({.units = 0})(rows), InvalidArgument);
  EXPECT_THROW(layers::Dense({.units = 4, .kernel_initializer = "glorot"})(rows), InvalidArgument);
  EXPECT_THROW(layers::Dropout({.rate = 1.0f})(rows), InvalidArgument);
  EXPECT_THAT(
      [&] {
        layers::Add{}({rows, image});
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("(10,)"), HasSubstr("(8, 8, 3)"))));
  EXPECT_THROW(layers::Add{}({rows}), InvalidArgument);
  EXPECT_THROW(layers::Concatenate({.axis = 0})({rows, rows}), InvalidArgument);
  EXPECT_THROW(layers::Concatenate({.axis = 2})({rows, rows}), InvalidArgument);
  EXPECT_THROW(layers::Input({.shape = {0, 3}}), InvalidArgument);
  const layers::Dense shared{.units = 2};
  shared(rows);
  EXPECT_THAT([&] { shared(image); }, ThrowsMessage<InvalidArgument>(HasSubstr("(8, 8, 3)")));
  EXPECT_THAT(
      ([&] {
        Sequential({layers::Input({.shape = {10}}), layers::Dense{.units = 3}, layers::MaxPooling2D{}});
      }),
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("layer 2"), HasSubstr("MaxPooling2D"))));
  EXPECT_THROW(Sequential({layers::Dense{.units = 3}}), InvalidArgument);
}

TEST(Zoo, ParameterCounts) {
  const Shape mnist{28, 28, 1};
  EXPECT_EQ(zoo::make("mlp", mnist, 10).count_params(), 669'706);
  EXPECT_EQ(zoo::make("cnn", mnist, 10).count_params(), 1'199'882);
  EXPECT_EQ(zoo::make("lenet5", mnist, 10).count_params(), 61'706);
  EXPECT_EQ(zoo::mlp(mnist, 10, {.dropout = 0.2f}).count_params(), 669'706);
  EXPECT_THAT([&] { zoo::make("resnet", mnist, 10); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("\"resnet\""), HasSubstr("mlp, cnn, lenet5"))));
  EXPECT_THROW(zoo::make("mlp", mnist, 0), InvalidArgument);
  EXPECT_THROW(zoo::make("cnn", {3, 3, 1}, 10), InvalidArgument);
}

TEST(Zoo, SeedsGiveDifferentWeights) {
  EXPECT_EQ(zoo::make("lenet5", {28, 28, 1}, 10, 4).get_weights(),
            zoo::make("lenet5", {28, 28, 1}, 10, 4).get_weights());
  EXPECT_NE(zoo::make("lenet5", {28, 28, 1}, 10, 4).get_weights(),
            zoo::make("lenet5", {28, 28, 1}, 10, 5).get_weights());
}

TEST(Summary, OfASequential) {
  const Sequential model({layers::Input({.shape = {28, 28, 1}}), layers::Flatten{},
                          layers::Dense{.units = 512, .activation = "relu"}, layers::BatchNormalization{}});
  EXPECT_EQ(model.summary(), R"(Model: "sequential"
_________________________________________________________________
 Layer (type)                Output Shape              Param #   
=================================================================
 flatten (Flatten)           (None, 784)               0         
                                                                 
 dense (Dense)               (None, 512)               401920    
                                                                 
 batch_normalization (BatchN (None, 512)               2048      
                                                                 
=================================================================
Total params: 403,968
Trainable params: 402,944
Non-trainable params: 1,024
_________________________________________________________________
One sample, forward: 401,408 multiply-adds, 0.0008028 GFLOPs
)");
}

TEST(Summary, ShowsConnectionsOfABranchedModel) {
  const auto in = layers::Input({.shape = {4}});
  const layers::Dense shared{.units = 4, .name = "shared"};
  const auto once = shared(in);
  const auto out = layers::Add{}({once, shared(once)});
  const std::string text = Model({in}, {out}).summary();
  EXPECT_THAT(text, HasSubstr("Connected to"));
  EXPECT_THAT(text, HasSubstr("['input_1[0][0]',"));
  EXPECT_THAT(text, HasSubstr("['shared[0][0]',"));
  EXPECT_THAT(text, HasSubstr(" 'shared[1][0]']"));
  EXPECT_THAT(text, HasSubstr("(None, 4)"));
}

}  // namespace
}  // namespace rondo
