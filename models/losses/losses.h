#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/graph/objective.h"
#include "runtime/base/dtype.h"
#include "runtime/tensor/shape.h"

namespace rondo {

// "categorical_crossentropy", "sparse_categorical_crossentropy", "binary_crossentropy",
// "mean_squared_error" or "mse". Throws InvalidArgument that lists the names.
Loss loss_by_name(std::string_view name);
std::string_view loss_name(Loss loss);

// Resolves a compile call's names for a model output of shape `output` (one sample). "accuracy" and "acc"
// become binary accuracy where the last axis has one element, else sparse or categorical accuracy after the
// loss's labels; further names: "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy",
// "mse", "mean_squared_error", "mae", "mean_absolute_error". Throws InvalidArgument for an unknown name and
// for a metric whose labels are not those of the loss.
Objective make_objective(std::string_view loss, const std::vector<std::string>& metrics, const Shape& output);

// Labels of one sample as a loss wants them. Throws InvalidArgument that names the loss, what it wants, what
// `data` has, and which loss would fit.
void check_labels(const Objective& objective, const Shape& output, const Shape& label_shape,
                  DType label_dtype, std::string_view data);

}  // namespace rondo
