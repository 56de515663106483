#include "models/losses/losses.h"

#include <array>
#include <utility>

#include "runtime/base/error.h"

namespace rondo {
namespace {

constexpr std::array<std::pair<std::string_view, Loss>, 5> kLosses{{
    {"categorical_crossentropy", Loss::kCategoricalCrossentropy},
    {"sparse_categorical_crossentropy", Loss::kSparseCategoricalCrossentropy},
    {"binary_crossentropy", Loss::kBinaryCrossentropy},
    {"mean_squared_error", Loss::kMeanSquaredError},
    {"mse", Loss::kMeanSquaredError},
}};

constexpr std::array<std::pair<std::string_view, Metric>, 7> kMetrics{{
    {"binary_accuracy", Metric::kBinaryAccuracy},
    {"categorical_accuracy", Metric::kCategoricalAccuracy},
    {"sparse_categorical_accuracy", Metric::kSparseCategoricalAccuracy},
    {"mean_squared_error", Metric::kMeanSquaredError},
    {"mse", Metric::kMeanSquaredError},
    {"mean_absolute_error", Metric::kMeanAbsoluteError},
    {"mae", Metric::kMeanAbsoluteError},
}};

template <class Table>
std::string names(const Table& table) {
  std::string out;
  for (const auto& entry : table) {
    out += out.empty() ? "" : ", ";
    out += entry.first;
  }
  return out;
}

int64_t last_extent(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
}

bool sparse(Loss loss) {
  return loss == Loss::kSparseCategoricalCrossentropy;
}

Metric metric_by_name(std::string_view name, Loss loss, const Shape& output) {
  if (name == "accuracy" || name == "acc") {
    if (last_extent(output) == 1) return Metric::kBinaryAccuracy;
    return sparse(loss) ? Metric::kSparseCategoricalAccuracy : Metric::kCategoricalAccuracy;
  }
  for (const auto& [known, metric] : kMetrics) {
    if (known == name) return metric;
  }
  raise<InvalidArgument>("unknown metric \"{}\"; choose among accuracy, {}", name, names(kMetrics));
}

// Labels of one sample for a loss.
Shape label_shape_of(Loss loss, const Shape& output) {
  if (!sparse(loss)) return output;
  return output.rank() == 0 ? Shape{} : Shape(output.extents().first(static_cast<size_t>(output.rank() - 1)));
}

}  // namespace

Loss loss_by_name(std::string_view name) {
  for (const auto& [known, loss] : kLosses) {
    if (known == name) return loss;
  }
  raise<InvalidArgument>("unknown loss \"{}\"; choose one of {}", name, names(kLosses));
}

std::string_view loss_name(Loss loss) {
  for (const auto& [name, known] : kLosses) {
    if (known == loss) return name;
  }
  raise<InternalError>("unknown loss {}", static_cast<int>(loss));
}

Objective make_objective(std::string_view loss, const std::vector<std::string>& metrics,
                         const Shape& output) {
  Objective objective{.loss = loss_by_name(loss), .metrics = {}};
  for (const std::string& name : metrics) {
    const Metric metric = metric_by_name(name, objective.loss, output);
    const bool takes_classes = metric == Metric::kSparseCategoricalAccuracy;
    require(takes_classes == sparse(objective.loss),
            "metric \"{}\" takes {}, but loss \"{}\" takes {}; choose a metric or a loss that takes the same",
            name, takes_classes ? "class numbers" : "labels of the output's shape", loss,
            takes_classes ? "labels of the output's shape" : "class numbers");
    objective.metrics.push_back({name, metric});
  }
  return objective;
}

void check_labels(const Objective& objective, const Shape& output, const Shape& label_shape,
                  DType label_dtype, std::string_view data) {
  const Shape wanted = label_shape_of(objective.loss, output);
  const DType dtype = sparse(objective.loss) ? DType::kI32 : DType::kF32;
  // A class number may have an axis of its own.
  const bool one_class = sparse(objective.loss) && wanted.rank() == 0 && label_shape == Shape{1};
  if (label_dtype == dtype && (label_shape == wanted || one_class)) return;
  std::string_view hint = "";
  if (sparse(objective.loss) && label_shape == output) {
    hint = "; categorical_crossentropy takes such labels";
  } else if (!sparse(objective.loss) && label_dtype == DType::kI32 && last_extent(output) > 1) {
    hint = "; sparse_categorical_crossentropy takes class numbers";
  }
  raise<InvalidArgument>(
      "{}: loss \"{}\" wants {} labels of shape {} per sample, the data has {} of shape {}{}", data,
      loss_name(objective.loss), dtype_name(dtype), wanted.text(), dtype_name(label_dtype),
      label_shape.text(), hint);
}

}  // namespace rondo
