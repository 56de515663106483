// Masks of sequences: losses, gradients and predictions of layers that use them.
#include "models/layers/masking.h"
#include "models/layers/pooling.h"
#include "tests/models/gradient_fixture.h"
#include "tests/models/sequence_twins.h"

namespace rondo::test {
namespace {

// Inputs with some positions of 9, which the layers below mask.
class MaskGradientTest : public GradientTest {
 protected:
  static constexpr int64_t kTime = 5;
  void prepare_input(Array& values) override {
    const int64_t features = last(values);
    for (int64_t i = 0; i < values.size(); ++i) {
      const int64_t row = i / features / kTime, t = i / features % kTime;
      if ((row == 0 && (t == 0 || t == 3)) || (row == 1 && t >= 2)) values[i] = 9.0;
    }
  }
  // x with its mask.
  struct Masked {
    Twin x, mask;
  };
  static Masked masked(const Twin& x, const std::string& name) {
    const Twin mask = twin({}, [x](Evaluation& e) {
      const Array in = x.value(e);
      const int64_t features = last(in);
      Array out({in.shape[0], in.shape[1]});
      for (int64_t i = 0; i < in.size(); ++i) {
        if (in[i] != 9.0) out[i / features] = 1.0;
      }
      return out;
    });
    const Twin y = twin(layers::Masking{.mask_value = 9.0f, .name = name}(x.place), [x, mask](Evaluation& e) {
      Array in = x.value(e);
      const Array counts = mask.value(e);
      for (int64_t i = 0; i < in.size(); ++i) in[i] *= counts[i / last(in)];
      return in;
    });
    return {y, mask};
  }
};

TEST_F(MaskGradientTest, RecurrentLayersPassTheStateOn) {
  const Twin x = input("x", {kTime, 3});
  const auto [y, mask] = masked(x, "m");
  Twin z = apply(layers::Dense{.units = 4, .activation = "tanh", .name = "d"}, y);  // passes the mask
  z = apply(layers::LSTM{.units = 4, .return_sequences = true, .recurrent_dropout = 0.4f, .name = "l1"}, z,
            mask);
  z = apply(layers::GRU{.units = 3, .return_sequences = true, .name = "g1"}, z, mask);
  z = apply(layers::GRU{.units = 4,
                        .return_sequences = true,
                        .reset_after = false,
                        .recurrent_dropout = 0.4f,
                        .name = "g2"},
            z, mask);
  check({x}, apply(layers::LSTM{.units = 2, .go_backwards = true, .name = "l2"}, z, mask));
}

TEST_F(MaskGradientTest, OutputsOfMaskedStepsMayBeZeros) {
  const Twin x = input("x", {kTime, 3});
  const auto [y, mask] = masked(x, "m");
  const layers::LSTM layer{.units = 3, .return_sequences = true, .zero_output_for_mask = true, .name = "l"};
  const Twin states = apply(layer, y, mask);
  const Twin zeroed = twin(states.place, [states, mask = mask](Evaluation& e) {
    Array out = states.value(e);
    const Array counts = mask.value(e);
    for (int64_t i = 0; i < out.size(); ++i) out[i] *= counts[i / last(out)];
    return out;
  });
  check({x}, apply(layers::Flatten{}, zeroed));  // which drops the mask
}

TEST_F(MaskGradientTest, MeansOverThePositionsThatCount) {
  const Twin x = input("x", {kTime, 3});
  const auto [y, mask] = masked(x, "m");
  const Twin z = apply(layers::Dense{.units = 4, .activation = "tanh", .name = "d"}, y);
  const layers::GlobalAveragePooling1D mean{.name = "mean"};
  check({x}, twin(mean(z.place), [z, mask = mask](Evaluation& e) {
          const Array in = z.value(e), counts = mask.value(e);
          const int64_t features = last(in);
          Array out({in.shape[0], features});
          for (int64_t n = 0; n < in.shape[0]; ++n) {
            double count = 0.0;
            for (int64_t t = 0; t < kTime; ++t) count += counts[n * kTime + t];
            for (int64_t i = 0; i < kTime * features; ++i) {
              out[n * features + i % features] +=
                  in[n * kTime * features + i] * counts[n * kTime + i / features] / count;
            }
          }
          return out;
        }));
}

}  // namespace
}  // namespace rondo::test
