#include "models/program/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cxxopts.hpp>
#include <limits>

#include "models/files.h"
#include "models/zoo/zoo.h"
#include "runtime/base/error.h"
#include "runtime/launch/gpus.h"
#include "runtime/optim/schedule.h"

namespace rondo {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// All values are taken as text, so that a message can name the option and say what it takes.
cxxopts::Options make_parser() {
  const auto text = [](const char* preset) { return cxxopts::value<std::string>()->default_value(preset); };
  const auto optional = [] { return cxxopts::value<std::string>(); };  // absent: empty
  cxxopts::Options parser(
      "train",
      "Trains a model on this host's cores, on one rank or on all that a launcher starts:\n"
      "  ./train                   alone\n"
      "  mpirun -np 4 ./train      4 ranks share every batch\n");
  parser.custom_help("[options]");
  parser.add_options("Model and data")                      //
      ("model", joined(zoo::names()), text("cnn"), "NAME")  //
      ("data", "fashion-mnist, synthetic[:SAMPLES], or a directory of IDX files named as MNIST's",
       text("fashion-mnist"),  //
       "DATA")                 //
      ("validation-split",
       "hold out this part of the training data, its last samples, instead of validating on "
       "the test samples",
       text("0"), "FRACTION")  //
      ("load",
       "the model from FILE (.h5 or .keras, also of Keras) instead of --model; training goes on with the "
       "file's optimizer, its state, loss and metrics, as far as the options below name no other",
       optional(), "FILE")  //
      ("load-weights", "the model's weights from FILE", optional(), "FILE");
  parser.add_options("Training")                                                                        //
      ("epochs", "passes over the data", text("3"), "N")                                                //
      ("batch-size", "samples of a step, over all ranks", text("64"), "N")                              //
      ("steps-per-epoch", "end an epoch after this many steps; 0: when the data ends", text("0"), "N")  //
      ("optimizer", "sgd, rmsprop, adam, adagrad, adadelta, adamw, adamax, nadam, lars, lamb", text("adam"),
       "NAME")                                                                                       //
      ("learning-rate", "the optimizer's own: sgd and lars 0.01, others 0.001", optional(), "RATE")  //
      ("momentum", "of sgd", text("0"), "M")                                                         //
      ("schedule",
       "of the learning rate: constant, step:EVERY[:FACTOR], cosine[:TOTAL[:ALPHA]], "
       "exponential:EVERY:RATE[:staircase], inverse:EVERY:RATE[:staircase], "
       "polynomial:TOTAL[:END[:POWER[:cycle]]], piecewise:VALUE:STEP:VALUE[:STEP:VALUE...], each with "
       "[,warmup:STEPS]; counted in steps",
       text("constant"), "S")  //
      ("seed", "of the weights, the order and dropout", text("0"), "N");
  parser.add_options("Devices")                                                                        //
      ("device", "auto, cpu, cuda", text("auto"), "D")                                                 //
      ("gpus", "GPUs of each host: a count, or ids such as 0,2", optional(), "GPUS")                   //
      ("oversubscribe-gpus", "let several ranks share a GPU; they sum gradients through host memory")  //
      ("precision",
       "f32; on GPUs also tf32 (products round their inputs to 10 bits), bf16, f16 (layers compute in 16 "
       "bits, "
       "with float32 weights)",
       text("f32"), "P")                                                                               //
      ("no-replay", "do not capture the steps of GPUs once and replay them as CUDA graphs")            //
      ("threads", "of each rank; 0: its share of the cores it may use", text("0"), "N")                //
      ("bucket-mb", "gradients are summed over ranks in pieces of this many MiB", text("25"), "SIZE")  //
      ("tune-collectives",
       "measure what collectives cost among these ranks, write it to FILE and exit; start it as training "
       "will be",
       optional(), "FILE")  //
      ("collectives", "choose their algorithms by such a FILE; else by $RONDO_COLLECTIVES, else by guesses",
       optional(), "FILE");
  parser.add_options("Output")                                                                     //
      ("save", "write the trained model to FILE (.h5, .hdf5, .keras)", optional(), "FILE")         //
      ("save-weights", "write its weights to FILE (.h5, .hdf5, .weights.h5)", optional(), "FILE")  //
      ("checkpoint",
       "write the model to FILE after every epoch; {epoch}, {val_loss:.2f} and the like are filled in",
       optional(), "FILE")  //
      ("keras3",
       "write these files for Keras 3 where it reads others than tf.keras 2.x (attention layers, an "
       "optimizer's state)")                                                                 //
      ("evaluate", "print loss and accuracy on the validation samples instead of training")  //
      ("predict", "write the outputs for the validation samples to FILE (.npy) instead of training",
       optional(),
       "FILE")                                                                         //
      ("progress", "auto, bar, lines, none", text("auto"), "P")                        //
      ("log-jsonl", "write an object per step and epoch to FILE", optional(), "FILE")  //
      ("log-csv", "write a line per epoch to FILE", optional(), "FILE");
  parser.add_options("Information")                                    //
      ("summary", "print the model's table and exit")                  //
      ("check-build", "print what this build was made with and exit")  //
      ("version", "print the version and exit")                        //
      ("h,help", "print this and exit");
  return parser;
}

const std::vector<std::string> kGroups{"Model and data", "Training", "Devices", "Output", "Information"};

class Values {
 public:
  explicit Values(const cxxopts::ParseResult& result) : result_(result) {}

  bool flag(const char* name) const { return result_.count(name) > 0; }
  // An option without a default has the empty text when it is absent.
  std::string text(const std::string& name) const {
    const cxxopts::OptionValue& value = result_[name];
    return value.count() > 0 || value.has_default() ? value.as<std::string>() : std::string();
  }

  int64_t integer(const char* name, int64_t least, int64_t most = std::numeric_limits<int64_t>::max()) const {
    const std::string given = text(name);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    const bool whole = error == std::errc() && end == given.data() + given.size();
    if (most == std::numeric_limits<int64_t>::max()) {
      require(whole && value >= least, "--{} is \"{}\"; it takes a whole number of at least {}", name, given,
              least);
    } else {
      require(whole && value >= least && value <= most,
              "--{} is \"{}\"; it takes a whole number from {} to {}", name, given, least, most);
    }
    return value;
  }

  double real(const char* name, const char* what) const {
    const std::string given = text(name);
    double value = 0.0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    require(error == std::errc() && end == given.data() + given.size() && std::isfinite(value),
            "--{} is \"{}\"; it takes {}", name, given, what);
    return value;
  }

 private:
  const cxxopts::ParseResult& result_;
};

OptimizerConfig read_optimizer(const Values& values) {
  const std::string name = values.text("optimizer");
  OptimizerConfig config = optimizer_by_name(name);
  constexpr const char* kRate = "a number above 0, such as 0.001";
  const Schedule schedule = parse_schedule(values.text("schedule"));
  std::visit(
      [&](auto& optimizer) {
        optimizer.schedule = schedule;
        if (!values.text("learning-rate").empty()) {
          optimizer.learning_rate = values.real("learning-rate", kRate);
          require(optimizer.learning_rate > 0.0, "--learning-rate is \"{}\"; it takes {}",
                  values.text("learning-rate"), kRate);
        }
      },
      config);
  constexpr const char* kMomentum = "a number from 0 up to, not including, 1";
  const double momentum = values.real("momentum", kMomentum);
  require(momentum >= 0.0 && momentum < 1.0, "--momentum is \"{}\"; it takes {}", values.text("momentum"),
          kMomentum);
  if (auto* sgd = std::get_if<SGD>(&config)) {
    sgd->momentum = momentum;
  } else {
    require(momentum == 0.0, "--momentum is an option of sgd, and --optimizer is \"{}\"", name);
  }
  return config;
}

ModelFileOptions read_files(const Values& values) {
  ModelFileOptions files{.load = values.text("load"),
                         .load_weights = values.text("load-weights"),
                         .save = values.text("save"),
                         .save_weights = values.text("save-weights"),
                         .checkpoint = values.text("checkpoint"),
                         .for_keras3 = values.flag("keras3"),
                         .evaluate = values.flag("evaluate"),
                         .predict = values.text("predict")};
  require(files.load.empty() || !values.flag("model"), "--load brings its model along; leave --model out");
  const bool trains = !files.evaluate && files.predict.empty();
  require(trains || !files.load.empty() || !files.load_weights.empty(),
          "--evaluate and --predict need a trained model: give --load or --load-weights");
  require(trains || (files.checkpoint.empty() && values.text("log-jsonl").empty()),
          "--evaluate and --predict take the place of training: leave --checkpoint and --log-jsonl out");
  require(files.predict.empty() || files.predict.ends_with(".npy"),
          "--predict is \"{}\"; it takes a name that ends with .npy", files.predict);
  if (!files.save.empty()) check_file_name(files.save, false);
  if (!files.checkpoint.empty()) check_file_name(files.checkpoint, false);
  if (!files.save_weights.empty()) check_file_name(files.save_weights, true);
  return files;
}

std::vector<Fact> facts_of(const Values& values, const cxxopts::Options& parser) {
  std::vector<Fact> facts;
  for (const std::string& group : parser.groups()) {
    for (const auto& option : parser.group_help(group).options) {
      const std::string name = option.l.empty() ? std::string() : option.l.front();
      if (!name.empty() && !option.is_boolean) facts.push_back({"--" + name, values.text(name)});
    }
  }
  return facts;
}

Action action_of(const Values& values) {
  if (values.flag("help")) return Action::kHelp;
  if (values.flag("version")) return Action::kVersion;
  if (values.flag("check-build")) return Action::kCheckBuild;
  if (values.flag("summary")) return Action::kSummary;
  return Action::kTrain;
}

ProgramOptions read(const Values& values) {
  ProgramOptions options;
  options.action = action_of(values);
  options.model = values.text("model");
  const std::vector<std::string> models = zoo::names();
  require(std::find(models.begin(), models.end(), options.model) != models.end(),
          "unknown model \"{}\"; --model takes one of {}", options.model, joined(models));
  options.data = values.text("data");
  require(!options.data.empty(),
          "--data is empty; it takes fashion-mnist, synthetic, or a directory of IDX files");
  constexpr const char* kFraction = "a number from 0 up to, not including, 1";
  options.validation_split = values.real("validation-split", kFraction);
  require(options.validation_split >= 0.0 && options.validation_split < 1.0,
          "--validation-split is \"{}\"; it takes {}", values.text("validation-split"), kFraction);
  options.epochs = values.integer("epochs", 1);
  options.batch_size = values.integer("batch-size", 1);
  options.steps_per_epoch = values.integer("steps-per-epoch", 0);
  options.seed = static_cast<uint64_t>(values.integer("seed", 0));
  options.optimizer = read_optimizer(values);
  options.optimizer_given = values.flag("optimizer");
  options.learning_rate_given = values.flag("learning-rate");
  options.schedule_given = values.flag("schedule");
  options.binding.device = parse_device(values.text("device"));
  options.binding.gpus = values.text("gpus");
  parse_gpus(options.binding.gpus);
  options.binding.oversubscribe_gpus = values.flag("oversubscribe-gpus");
  options.precision = precision_by_name(values.text("precision"));
  options.replay_steps = !values.flag("no-replay");
  options.binding.threads = static_cast<int>(values.integer("threads", 0, 1024));
  constexpr const char* kSize = "a number above 0 and up to 4096";
  const double bucket_mb = values.real("bucket-mb", kSize);
  require(bucket_mb > 0.0 && bucket_mb <= 4096.0, "--bucket-mb is \"{}\"; it takes {}",
          values.text("bucket-mb"), kSize);
  options.bucket_bytes = std::max<int64_t>(1, std::llround(bucket_mb * 1024.0 * 1024.0));
  options.collectives = values.text("collectives");
  options.tune_collectives = values.text("tune-collectives");
  require(options.collectives.empty() || options.tune_collectives.empty(),
          "--tune-collectives writes a file and --collectives reads one; give one of them");
  options.files = read_files(values);
  options.log_jsonl = values.text("log-jsonl");
  options.log_csv = values.text("log-csv");
  require(options.log_csv.empty() || options.log_csv != options.log_jsonl,
          "--log-csv and --log-jsonl both name {}; give each a file of its own", options.log_csv);
  options.progress = parse_progress_mode(values.text("progress"));
  return options;
}

}  // namespace

ProgramOptions parse_options(int argc, const char* const* argv) {
  cxxopts::Options parser = make_parser();
  try {
    const cxxopts::ParseResult result = parser.parse(argc, argv);
    if (!result.unmatched().empty()) {
      raise<InvalidArgument>("unexpected word \"{}\"; options begin with --, and `train --help` lists them",
                             result.unmatched().front());
    }
    const Values values(result);
    ProgramOptions options = read(values);
    options.facts = facts_of(values, parser);
    return options;
  } catch (const cxxopts::exceptions::exception& error) {
    raise<InvalidArgument>("{}; `train --help` lists the options", error.what());
  }
}

std::string help_text() {
  return make_parser().help(kGroups);
}

}  // namespace rondo
