#include "runtime/train/facts.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <memory>

#include "runtime/base/error.h"
#include "runtime/data/source.h"

namespace rondo {

namespace {

std::string precision_of(const TrainerOptions& options) {
  std::string text(precision_name(options.precision));
  if (options.precision == Precision::kF16) {
    text += fmt::format(", loss scale {}, doubled after {} steps", options.loss_scaling.initial,
                        options.loss_scaling.growth_steps);
  }
  return text;
}

}  // namespace

std::vector<Fact> trainer_facts(const ParameterList& parameters, const std::vector<std::string>& value_names,
                                const TrainerOptions& options, std::span<const Bucket> plan) {
  std::vector<Fact> facts{
      {"Rondo version", RONDO_VERSION},
      {"optimizer", describe(options.optimizer)},
      {"precision", precision_of(options)},
      {"bucket bytes", fmt::format("{} first, then {}", options.buckets.first_bytes, options.buckets.bytes)},
      {"bucket plan", digest(plan)}};
  std::string names;
  for (const std::string& name : value_names) names += (names.empty() ? "" : ", ") + name;
  facts.push_back({"reported values", names});
  facts.push_back({"number of parameters", fmt::format("{}", parameters.size())});
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = *parameters[i];
    facts.push_back({fmt::format("parameter {}", i),
                     fmt::format("{} {} {} {}{}", p.name, p.desc.shape.text(), dtype_name(p.desc.dtype),
                                 p.desc.layout.text(), p.trainable ? "" : ", not trainable")});
  }
  return facts;
}

Fact value_fact(const ParameterList& parameters, Stream& stream) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  RONDO_CHECK(hash != nullptr);
  XXH3_64bits_reset(hash.get());
  const bool here = stream.device().host_accessible();
  std::vector<std::byte> copy;
  for (const Parameter* p : parameters) {
    if (!here) {
      copy.resize(static_cast<size_t>(p->desc.bytes()));
      stream.copy(copy.data(), p->value.data, p->desc.bytes());
      stream.synchronize();
    }
    XXH3_64bits_update(hash.get(), here ? p->value.data : copy.data(), static_cast<size_t>(p->desc.bytes()));
  }
  return {"parameter values", fmt::format("{:016x}", XXH3_64bits_digest(hash.get()))};
}

namespace {

// "inputs (28, 28, 1), labels () int32".
std::string shapes_of(const Source& data) {
  std::string text = "inputs";
  for (const SampleField& input : data.inputs()) text += " " + input.shape.text();
  text += ", labels";
  for (const SampleField& label : data.labels()) {
    text += fmt::format(" {} {}", label.shape.text(), dtype_name(label.dtype));
  }
  return text;
}

}  // namespace

void add_data_facts(std::vector<Fact>& facts, const std::string& what, const Source& data) {
  facts.push_back({what + " size", fmt::format("{}", data.size())});
  facts.push_back({what + " shapes", shapes_of(data)});
  facts.push_back({what + " digest", fmt::format("{:016x}", data.digest())});
}

namespace {

std::string validation_epochs(const FitOptions& options) {
  if (options.validation_epochs.empty()) return fmt::format("{}", options.validation_freq);
  std::string epochs;
  for (const int64_t epoch : options.validation_epochs) epochs += fmt::format("{} ", epoch);
  return epochs;
}

}  // namespace

std::vector<Fact> fit_facts(const Source& data, const FitOptions& options) {
  std::string callbacks;
  for (const Callback* callback : options.callbacks) {
    if (callback->decides()) callbacks += (callbacks.empty() ? "" : ", ") + callback->name();
  }
  std::vector<Fact> facts{{"batch_size", fmt::format("{}", options.batch_size)},
                          {"epochs", fmt::format("{}", options.epochs)},
                          {"initial_epoch", fmt::format("{}", options.initial_epoch)},
                          {"steps_per_epoch", fmt::format("{}", options.steps_per_epoch)},
                          {"shuffle", fmt::format("{}", options.shuffle)},
                          {"seed", fmt::format("{}", options.seed)},
                          {"validation", options.validation != nullptr ? "given" : "none"},
                          {"validation_batch_size", fmt::format("{}", options.validation_batch_size)},
                          {"replay_steps", fmt::format("{}", options.replay_steps)},
                          {"validation_freq", validation_epochs(options)},
                          {"callbacks", callbacks}};
  add_data_facts(facts, "data", data);
  if (options.validation != nullptr) add_data_facts(facts, "validation data", *options.validation);
  return facts;
}

void check_data(const std::string& what, const Source& data, int64_t batch_size) {
  require(data.size() >= 1, "{} ({}) is empty; at least one sample is needed", what, data.name());
  require(batch_size >= 1, "batch_size is {}; it must be at least 1", batch_size);
}

void check_fit(const Source& data, const FitOptions& options) {
  check_data("the training data", data, options.batch_size);
  require(options.epochs >= 1, "epochs is {}; it must be at least 1", options.epochs);
  require(options.initial_epoch >= 0 && options.initial_epoch <= options.epochs,
          "initial_epoch is {}; it must lie in 0..{}, since epochs is the index of the last one",
          options.initial_epoch, options.epochs);
  require(options.steps_per_epoch >= 0,
          "steps_per_epoch is {}; it must be positive, or 0 for one pass over the data",
          options.steps_per_epoch);
  require(options.validation_batch_size >= 0,
          "validation_batch_size is {}; it must be positive, or 0 for batch_size",
          options.validation_batch_size);
  require(options.validation_freq >= 1, "validation_freq is {}; it must be at least 1",
          options.validation_freq);
  for (const int64_t epoch : options.validation_epochs) {
    require(epoch >= 1, "validation after epoch {}: epochs are numbered from 1", epoch);
  }
  require(options.loader_threads >= 0, "loader_threads is {}; it must be 0 or more", options.loader_threads);
  for (size_t i = 0; i < options.callbacks.size(); ++i) {
    require(options.callbacks[i] != nullptr, "callback {} is a null pointer", i);
  }
  if (options.validation == nullptr) return;
  const Source& validation = *options.validation;
  check_data("the validation data", validation, options.batch_size);
  require(shapes_of(validation) == shapes_of(data),
          "validation samples have {}, training samples {}; they must be alike", shapes_of(validation),
          shapes_of(data));
}

}  // namespace rondo
