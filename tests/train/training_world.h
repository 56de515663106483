// What the tests of the trainer share: data, and one rank's device, network and trainer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/local/local_communicator.h"
#include "runtime/data/array_source.h"
#include "runtime/device/cpu/cpu_device.h"
#include "runtime/kernels/backend.h"
#include "runtime/kernels/cpu/cpu_backend.h"
#include "runtime/train/trainer.h"
#include "tests/train/fake_network.h"

namespace rondo::test {

// Samples of 5 inputs whose class (of 3) a small network can learn.
std::shared_ptr<ArraySource> learnable_data(int64_t size, uint64_t seed = 3);

// One rank.
struct RankWorld {
  explicit RankWorld(Communicator& communicator, const TrainerOptions& options = {},
                     const FakeNetworkOptions& network_options = {})
      : comm(communicator), network(*device, network_options), trainer(comm, *backend, network, options) {}

  Communicator& comm;
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<KernelBackend> backend = make_cpu_backend(*device);
  FakeNetwork network;
  Trainer trainer;
};

// Remembers what it was told.
class Recorder : public Callback {
 public:
  std::string name() const override { return "Recorder"; }
  bool decides() const override { return false; }
  void on_train_begin(const RunReport& report) override { run = report; }
  Decision on_step_end(const StepReport& report) override;
  Decision on_epoch_end(const EpochReport& report) override {
    epochs.push_back(report);
    return Decision::kContinue;
  }
  void on_train_end(const EndReport& report) override { end = report; }

  RunReport run;
  std::vector<StepReport> steps;  // their spans are not valid any more
  std::vector<double> losses;
  std::vector<double> accuracies;
  std::vector<EpochReport> epochs;
  EndReport end;
};

// Says kStop at the end of one step or epoch, counted from 0 over the run, on some ranks.
class Stopper : public Callback {
 public:
  explicit Stopper(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  std::string reason() const override { return "because"; }
  Decision on_step_end(const StepReport&) override {
    return step++ == at_step ? Decision::kStop : Decision::kContinue;
  }
  Decision on_epoch_end(const EpochReport&) override {
    return epoch++ == at_epoch ? Decision::kStop : Decision::kContinue;
  }
  int64_t at_step = -1;
  int64_t at_epoch = -1;
  int64_t step = 0;
  int64_t epoch = 0;

 private:
  std::string name_;
};

// Runs `body` on every rank and gives what it threw on each: the text, or "" for nothing.
std::vector<std::string> errors_of_ranks(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace rondo::test
