// Keras' own example of multi_gpu_model: Xception on 224 x 224 images of 1000 classes, trained over all ranks
// of a launcher on made-up data, and saved through the template.
//
//   mpirun -np 2 ./xception_example [STEPS] [ROWS_OF_EACH_RANK] [FILE]
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "models/rondo.h"

namespace {

constexpr int64_t kClasses = 1000;

// Uniform pixels, and one-hot labels.
rondo::ArrayData random_images(int64_t samples) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> pixel;
  std::vector<float> images(static_cast<size_t>(samples * 224 * 224 * 3));
  for (float& value : images) value = pixel(random);
  std::vector<float> labels(static_cast<size_t>(samples * kClasses));
  for (size_t row = 0; row < static_cast<size_t>(samples); ++row)
    labels[row * kClasses + random() % kClasses] = 1.0f;
  return {.name = "random",
          .input_shape = {224, 224, 3},
          .input = std::move(images),
          .label_shape = {kClasses},
          .labels = std::move(labels)};
}

int64_t number(int argc, char** argv, int at, int64_t otherwise) {
  if (at >= argc) return otherwise;
  char* end = nullptr;
  const long long value = std::strtoll(argv[at], &end, 10);
  rondo::require(*end == '\0' && value > 0 && value <= 1 << 20, "\"{}\" is no number above 0", argv[at]);
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  return rondo::run(argc, argv, [&](rondo::World& world) {
    const int64_t steps = number(argc, argv, 1, 3);
    const int64_t batch = number(argc, argv, 2, 2) * world.size();
    const rondo::ArraySource data(random_images(steps * batch));

    rondo::Model model = rondo::zoo::xception({224, 224, 3}, kClasses);
    rondo::Model parallel = rondo::multi_gpu_model(model, world);
    parallel.compile(
        {.optimizer = rondo::RMSprop{}, .loss = "categorical_crossentropy", .metrics = {"accuracy"}});
    rondo::Progress progress;
    std::vector<rondo::Callback*> callbacks;
    if (world.rank() == 0) callbacks.push_back(&progress);
    const rondo::History history = parallel.fit(data, {.batch_size = batch, .callbacks = callbacks});

    model.save(argc > 3 ? argv[3] : "xception.h5");
    if (world.rank() == 0) std::printf("%d ranks, loss %.4f\n", world.size(), history.at("loss").back());
    return 0;
  });
}
