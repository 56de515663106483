#include <cstdio>

#include "models/rondo.h"

int main(int argc, char** argv) {
  rondo::World world(argc, argv);  // finds the other ranks; alone it is a world of one

  const rondo::SyntheticSource data({.size = 2048});
  rondo::Model model = rondo::Sequential({
      rondo::layers::Input({.shape = {28, 28, 1}}),
      rondo::layers::Conv2D{.filters = 8, .kernel_size = {3, 3}, .activation = "relu"},
      rondo::layers::MaxPooling2D{},
      rondo::layers::Flatten{},
      rondo::layers::Dense{.units = 10, .activation = "softmax"},
  });

  rondo::Model parallel = rondo::multi_gpu_model(model, world);
  parallel.compile({.optimizer = rondo::Adam{.learning_rate = 0.002},
                    .loss = "sparse_categorical_crossentropy",
                    .metrics = {"accuracy"}});
  const rondo::History history = parallel.fit(data, {.batch_size = 64, .epochs = 2});

  // `model` has the trained weights on every rank.
  if (world.rank() == 0)
    std::printf("%d ranks: accuracy %.3f\n", world.size(), history.at("accuracy").back());
  return history.at("accuracy").back() > 0.9 ? 0 : 1;
}
