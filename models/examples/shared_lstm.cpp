// The Keras FAQ's example of device parallelism: one LSTM encodes two texts on two devices at once, and a
// dense layer says whether one author wrote both. Trained on made-up texts, once with everything on the first
// device of each rank and once over two.
//
//   ./shared_lstm_example [STEPS]
//   mpirun -np 2 ./shared_lstm_example [STEPS]
//
// A rank's two devices are two GPUs where there are some, else two groups of its cores.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "models/rondo.h"

namespace {

constexpr int64_t kLength = 28, kLetters = 32, kRows = 32;

// Each of eight authors has a few letters that it likes.
rondo::ArraysData texts(int64_t pairs) {
  std::mt19937 random(1);
  const auto write = [&](float* text, unsigned author) {
    for (int64_t at = 0; at < kLength; ++at) {
      const unsigned letter = random() % 2 == 0 ? author * 4 + random() % 4 : random() % kLetters;
      text[at * kLetters + letter] = 1.0f;
    }
  };
  const auto size = static_cast<size_t>(pairs * kLength * kLetters);
  std::vector<float> a(size), b(size), same(static_cast<size_t>(pairs));
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const unsigned author = random() % 8, other = random() % 2 == 0 ? author : random() % 8;
    write(a.data() + pair * kLength * kLetters, author);
    write(b.data() + pair * kLength * kLetters, other);
    same[static_cast<size_t>(pair)] = author == other ? 1.0f : 0.0f;
  }
  return {.name = "texts",
          .inputs = {{.shape = {kLength, kLetters}, .values = std::move(a)},
                     {.shape = {kLength, kLetters}, .values = std::move(b)}},
          .labels = {{.shape = {1}, .values = std::move(same)}}};
}

rondo::Model two_branches(const char* second_device) {
  const auto a = rondo::layers::Input({.shape = {kLength, kLetters}});
  const auto b = rondo::layers::Input({.shape = {kLength, kLetters}});
  const rondo::layers::LSTM shared_lstm{.units = 64};
  rondo::SymbolicTensor encoded_a, encoded_b;
  {
    const auto scope = rondo::device_scope("/gpu:0");
    encoded_a = shared_lstm(a);
  }
  {
    const auto scope = rondo::device_scope(second_device);
    encoded_b = shared_lstm(b);
  }
  const auto merged = rondo::layers::Concatenate{}({encoded_a, encoded_b});
  const auto same = rondo::layers::Dense{.units = 1, .activation = "sigmoid"}(merged);
  return rondo::Model({a, b}, {same}, {.seed = 7});
}

}  // namespace

int main(int argc, char** argv) {
  return rondo::run(argc, argv, [&](rondo::World& world) {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 20;
    rondo::require(steps > 0 && steps <= 10000, "\"{}\" is no number of steps, 1 to 10000", argv[1]);
    world.bind({.devices_per_rank = 2});
    world.device_comm();
    if (world.rank() == 0) std::printf("%s", world.banner().c_str());

    const rondo::ArraySource data(texts(steps * kRows));
    std::vector<std::vector<float>> weights;
    double losses[2] = {}, apart = 0.0;
    for (const int devices : {1, 2}) {
      rondo::Model model = two_branches(devices == 1 ? "/gpu:0" : "/gpu:1");
      rondo::Model parallel = rondo::multi_gpu_model(model, world);
      parallel.compile(
          {.optimizer = rondo::RMSprop{}, .loss = "binary_crossentropy", .metrics = {"accuracy"}});
      const rondo::History history = parallel.fit(data, {.batch_size = kRows, .replay_steps = false});
      losses[devices - 1] = history.at("loss").back();
      const auto trained = model.get_weights();
      for (size_t w = 0; w < weights.size(); ++w) {
        for (size_t i = 0; i < weights[w].size(); ++i) {
          apart = std::max(apart, std::abs(static_cast<double>(trained[w][i]) - weights[w][i]));
        }
      }
      weights = trained;
      if (world.rank() == 0) {
        std::printf("%d device%s for each of %d ranks: %.0f pairs/s, loss %.6f\n", devices,
                    devices == 1 ? "" : "s", world.size(),
                    static_cast<double>(history.end.samples) / history.end.seconds, losses[devices - 1]);
      }
    }
    if (world.rank() == 0) {
      std::printf("losses differ by %.1e, weights by %.1e at most\n", std::abs(losses[0] - losses[1]), apart);
    }
    return apart < 1e-4 ? 0 : 1;
  });
}
