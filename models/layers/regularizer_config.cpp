#include "models/layers/regularizer_config.h"

#include "models/layers/config_parts.h"

namespace rondo {
namespace {

constexpr double kPreset = 0.01;  // Keras' factor where none is given

}  // namespace

Regularizer regularizer_from(const ConfigView& config, std::string_view key) {
  const auto found = config.find(key);
  if (!found) return {};
  Regularizer out;
  if (found->is_string()) {
    const std::string& name = found->string();
    const bool both = name == "l1_l2" || name == "L1L2";
    if (both || name == "l1" || name == "L1") out.l1 = kPreset;
    if (both || name == "l2" || name == "L2") out.l2 = kPreset;
    if (!out) found->fail("l1, l2 or l1_l2");
    return out;
  }
  const ConfigObject object = read_object(*found);
  const std::string& name = object.class_name;
  if (name != "L1" && name != "L2" && name != "L1L2") found->fail("a regularizer of class L1, L2 or L1L2");
  if (name != "L2") out.l1 = object.config.number("l1", name == "L1" ? kPreset : 0.0);
  if (name != "L1") out.l2 = object.config.number("l2", name == "L2" ? kPreset : 0.0);
  if (!(out.l1 >= 0.0) || !(out.l2 >= 0.0)) found->fail("factors of at least 0");
  return out;
}

ConfigValue regularizer_config(const Regularizer& regularizer) {
  if (!regularizer) return nullptr;
  Config object, config;
  const bool both = regularizer.l1 != 0.0 && regularizer.l2 != 0.0;
  object.set("class_name", both ? "L1L2" : regularizer.l1 != 0.0 ? "L1" : "L2");
  if (regularizer.l1 != 0.0) config.set("l1", regularizer.l1);
  if (regularizer.l2 != 0.0) config.set("l2", regularizer.l2);
  object.set("config", config);
  return object;
}

}  // namespace rondo
