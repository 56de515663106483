#include "models/layers/config_parts.h"

#include <array>
#include <cmath>
#include <utility>

#include "models/graph/activation_kind.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

struct Name {
  std::string_view ours;
  std::string_view keras;
  std::string_view other = {};  // what Keras also accepts
};

// Initializers whose configuration is a seed or nothing.
constexpr std::array<Name, 9> kPlain{{
    {"zeros", "Zeros"},
    {"ones", "Ones"},
    {"glorot_uniform", "GlorotUniform"},
    {"glorot_normal", "GlorotNormal"},
    {"he_uniform", "HeUniform"},
    {"he_normal", "HeNormal"},
    {"lecun_uniform", "LecunUniform"},
    {"lecun_normal", "LecunNormal"},
    {"orthogonal", "Orthogonal", "OrthogonalInitializer"},
}};

// VarianceScaling, which Keras before 2.4 writes for the six above.
Initializer variance_scaling_from(const ConfigView& config) {
  const double scale = config.number("scale", 1.0);
  const std::string mode = config.string("mode", "fan_in");
  const std::string distribution = config.string("distribution", "truncated_normal");
  std::string name;
  if (mode == "fan_avg" && scale == 1.0) name = "glorot";
  if (mode == "fan_in" && scale == 1.0) name = "lecun";
  if (mode == "fan_in" && scale == 2.0) name = "he";
  const bool uniform = distribution == "uniform",
             normal = distribution == "normal" || distribution == "truncated_normal";
  if (name.empty() || !(uniform || normal)) {
    return Initializer::variance_scaling(scale, mode, normal ? "truncated_normal" : distribution);
  }
  return name + (uniform ? "_uniform" : "_normal");
}

Initializer initializer_from_object(const ConfigObject& object) {
  const std::string& name = object.class_name;
  const ConfigView& config = object.config;
  for (const Name& plain : kPlain) {
    if (name != plain.keras && name != plain.other) continue;
    if (plain.ours == "orthogonal" && config.number("gain", 1.0) != 1.0) {
      return Initializer::orthogonal(config.number("gain", 1.0));
    }
    return std::string(plain.ours);
  }
  if (name == "VarianceScaling") return variance_scaling_from(config);
  if (name == "Constant") return Initializer::constant(config.number("value", 0.0));
  if (name == "RandomUniform") {
    return Initializer::uniform(config.number("minval", -0.05), config.number("maxval", 0.05));
  }
  if (name == "RandomNormal") {
    return Initializer::normal(config.number("mean", 0.0), config.number("stddev", 0.05));
  }
  if (name == "TruncatedNormal") {
    return Initializer::truncated_normal(config.number("mean", 0.0), config.number("stddev", 0.05));
  }
  if (name == "Identity" || name == "IdentityInitializer")
    return Initializer::identity(config.number("gain", 1.0));
  raise<FileError>("{}: the initializer {} is not supported", config.where(), name);
}

}  // namespace

ConfigObject read_object(const ConfigView& view) {
  static const ConfigValue kEmpty{Config{}};
  const ConfigView name = view["class_name"];
  const auto config = view.find("config");
  const std::string where = view.where() + ".config";
  return {name.string(), config ? *config : ConfigView(kEmpty, where)};
}

std::string activation_from(const ConfigView& config, std::string_view key) {
  const auto found = config.find(key);
  if (!found) return "linear";
  try {
    return std::string(activation_name(activation_by_name(found->string(), found->where())));
  } catch (const InvalidArgument& error) {
    throw FileError(error.what());
  }
}

Initializer initializer_from(const ConfigView& config, std::string_view key, std::string_view preset) {
  const auto found = config.find(key);
  if (!found) return std::string(preset);
  Initializer initializer =
      found->is_string() ? Initializer(found->string()) : initializer_from_object(read_object(*found));
  if (found->is_string()) {
    for (const Name& plain : kPlain) {
      if (found->string() == plain.keras) initializer = std::string(plain.ours);
    }
  }
  try {
    initializer.check(found->where());
  } catch (const InvalidArgument& error) {
    throw FileError(error.what());
  }
  return initializer;
}

ConfigValue initializer_config(const Initializer& initializer) {
  const std::string& name = initializer.name();
  for (const Name& plain : kPlain) {
    if (name != plain.ours) continue;
    Config config;
    if (plain.ours == "orthogonal") config.set("gain", 1.0);
    if (name != "zeros" && name != "ones") config.set("seed", nullptr);
    return Config{{"class_name", plain.keras}, {"config", config}};
  }
  const auto [a, b] = initializer.numbers();
  if (name == "constant") return Config{{"class_name", "Constant"}, {"config", Config{{"value", a}}}};
  if (name == "variance_scaling") {
    return Config{{"class_name", "VarianceScaling"},
                  {"config", Config{{"scale", a},
                                    {"mode", initializer.mode()},
                                    {"distribution", initializer.distribution()},
                                    {"seed", nullptr}}}};
  }
  if (name == "scaled_orthogonal") {
    return Config{{"class_name", "Orthogonal"}, {"config", Config{{"gain", a}, {"seed", nullptr}}}};
  }
  if (name.ends_with("identity")) {
    return Config{{"class_name", "Identity"}, {"config", Config{{"gain", name == "identity" ? 1.0 : a}}}};
  }
  if (name.starts_with("truncated")) {
    return Config{{"class_name", "TruncatedNormal"},
                  {"config", Config{{"mean", a}, {"stddev", b}, {"seed", nullptr}}}};
  }
  if (name.ends_with("uniform")) {
    return Config{{"class_name", "RandomUniform"},
                  {"config", Config{{"minval", a}, {"maxval", b}, {"seed", nullptr}}}};
  }
  return Config{{"class_name", "RandomNormal"},
                {"config", Config{{"mean", a}, {"stddev", b}, {"seed", nullptr}}}};
}

void require_channels_last(const ConfigView& config) {
  config.require_string("data_format", "channels_last");
}

}  // namespace rondo
