#include "models/graph/plan.h"

#include <fmt/core.h>

#include <string_view>

namespace rondo {
namespace {

std::string place(const Plan& plan, const PlanValue& value) {
  if (value.storage < 0) return "caller";
  const std::string device = plan.others.empty() ? "" : fmt::format("{}", value.device);
  return fmt::format("{}@{}", device, plan.storages[static_cast<size_t>(value.storage)].offset);
}

std::string list(const Plan& plan, const std::vector<ValueId>& ids) {
  std::string out;
  for (const ValueId id : ids) {
    const PlanValue& value = plan.values[static_cast<size_t>(id)];
    out += fmt::format("{}%{} {} {} {}", out.empty() ? "" : ", ", id, value.tensor.desc.shape.text(),
                       value.tensor.desc.layout.text(), place(plan, value));
  }
  return out;
}

void describe_steps(const Plan& plan, std::string_view title, const std::vector<PlanStep>& steps,
                    std::string& out) {
  out += fmt::format("{}\n", title);
  for (size_t i = 0; i < steps.size(); ++i) {
    const PlanStep& step = steps[i];
    const std::string device = plan.others.empty() ? "" : fmt::format(" on device {}", step.device);
    out += fmt::format("  {:3} {} [{}]{}\n", i, step.name, step.kernel ? step.kernel->implementation() : "-",
                       device);
    if (!step.reads.empty()) out += fmt::format("        reads  {}\n", list(plan, step.reads));
    if (!step.writes.empty()) out += fmt::format("        writes {}\n", list(plan, step.writes));
    for (const Parameter* parameter : step.ready) {
      out += fmt::format("        ready  {} {} {}\n", parameter->name, parameter->desc.shape.text(),
                         parameter->desc.layout.text());
    }
  }
}

}  // namespace

void Plan::bind(void* arena, std::span<const Buffer> arenas) {
  for (PlanValue& value : values) {
    if (value.storage < 0) continue;
    void* base = value.device == 0 ? arena : arenas[static_cast<size_t>(value.device) - 1].data();
    value.tensor.data = static_cast<std::byte*>(base) + storages[static_cast<size_t>(value.storage)].offset;
  }
  for (PlanReplica& replica : replicas) {
    replica.parameter.value = values[static_cast<size_t>(replica.value)].tensor;
  }
}

void Plan::set_external(ValueId value, void* data) {
  values[static_cast<size_t>(value)].tensor.data = data;
  for (const auto& [view, source] : external_views) {
    if (source == value) values[static_cast<size_t>(view)].tensor.data = data;
  }
}

void Plan::run_forward(const Execution& on) const {
  for (const PlanStep& step : forward) step.run(on);
}

void Plan::run_backward(const Execution& on, GradSink& sink) const {
  for (const PlanStep& step : backward) {
    step.run(on);
    for (Parameter* parameter : step.ready) sink.ready(*parameter);
  }
}

std::string Plan::describe() const {
  std::string out =
      fmt::format("plan for {} rows, {}: arena {} bytes, scratch {} bytes\n", rows,
                  mode == Mode::kTraining ? "training" : "inference", arena_bytes, scratch_bytes);
  for (size_t d = 0; d < others.size(); ++d) {
    out += fmt::format("device {}: arena {} bytes, scratch {} bytes\n", d + 1, others[d].arena_bytes,
                       others[d].scratch_bytes);
  }
  describe_steps(*this, "forward", forward, out);
  if (!backward.empty()) describe_steps(*this, "backward", backward, out);
  return out;
}

}  // namespace rondo
