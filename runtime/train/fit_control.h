#pragma once

#include "runtime/train/callback.h"
#include "runtime/train/trainer_state.h"

namespace rondo {

// The trainer's side of TrainingControl.
class FitControl final : public TrainingControl {
 public:
  explicit FitControl(TrainerState& state) : state_(state) {}

  double learning_rate() const override;
  void set_learning_rate(double rate) override;
  void merge_statistics() override;
  void save_weights(WeightSnapshot& into) override;
  void restore_weights(const WeightSnapshot& from) override;

  // Collective. Compares the rate and adds the votes to stop: whether any rank wants to. Throws MismatchError
  // on every rank, with the rates, when they differ.
  bool agree(bool wants_stop) const;

 private:
  TrainerState& state_;
};

}  // namespace rondo
