#include "models/layers/constraint_config.h"

#include <array>

#include "models/layers/config_parts.h"
#include "runtime/base/error.h"

namespace rondo {
namespace {

struct Name {
  std::string_view keras, other;
  Constraint::Kind kind;
};
constexpr std::array<Name, 4> kNames{{{"MaxNorm", "max_norm", Constraint::Kind::kMaxNorm},
                                      {"NonNeg", "non_neg", Constraint::Kind::kNonNeg},
                                      {"UnitNorm", "unit_norm", Constraint::Kind::kUnitNorm},
                                      {"MinMaxNorm", "min_max_norm", Constraint::Kind::kMinMaxNorm}}};

Constraint preset(Constraint::Kind kind) {
  if (kind == Constraint::Kind::kMaxNorm) return Constraint::max_norm();
  return {.kind = kind};
}

// A whole number, or a list of them.
std::vector<int> axes_from(const ConfigView& config) {
  const auto axis = config.find("axis");
  if (!axis) return {0};
  std::vector<int> axes;
  const auto add = [&](const ConfigView& each) {
    const int64_t value = each.integer();
    if (value < -Shape::kMaxRank || value >= Shape::kMaxRank) each.fail("an axis");
    axes.push_back(static_cast<int>(value));
  };
  if (!axis->is_list()) {
    add(*axis);
  } else {
    for (const ConfigView& each : axis->list()) add(each);
  }
  return axes;
}

}  // namespace

Constraint constraint_from(const ConfigView& config, std::string_view key) {
  const auto found = config.find(key);
  if (!found) return {};
  const bool named = found->is_string();
  const std::string name = named ? found->string() : read_object(*found).class_name;
  for (const Name& known : kNames) {
    if (name != known.keras && !(named && name == known.other)) continue;
    Constraint constraint = preset(known.kind);
    if (named) return constraint;
    const ConfigView settings = read_object(*found).config;
    constraint.axes = axes_from(settings);
    constraint.low = settings.number("min_value", constraint.low);
    constraint.high = settings.number("max_value", constraint.high);
    constraint.rate = settings.number("rate", constraint.rate);
    const bool sound = constraint.low >= 0.0 && constraint.high >= constraint.low && constraint.rate >= 0.0 &&
                       constraint.rate <= 1.0;
    if (!sound) found->fail("norms in a range, and a rate in [0, 1]");
    return constraint;
  }
  found->fail("a constraint of class MaxNorm, NonNeg, UnitNorm or MinMaxNorm");
}

ConfigValue constraint_config(const Constraint& constraint) {
  for (const Name& known : kNames) {
    if (constraint.kind != known.kind) continue;
    Config config;
    if (constraint.kind == Constraint::Kind::kMinMaxNorm) config.set("min_value", constraint.low);
    if (constraint.kind == Constraint::Kind::kMinMaxNorm || constraint.kind == Constraint::Kind::kMaxNorm) {
      config.set("max_value", constraint.high);
    }
    if (constraint.kind == Constraint::Kind::kMinMaxNorm) config.set("rate", constraint.rate);
    if (constraint.kind != Constraint::Kind::kNonNeg) {
      if (constraint.axes.size() == 1) {
        config.set("axis", constraint.axes.front());
      } else {
        config.set("axis", ConfigList(constraint.axes.begin(), constraint.axes.end()));
      }
    }
    return Config{{"class_name", known.keras}, {"config", config}};
  }
  return nullptr;
}

}  // namespace rondo
