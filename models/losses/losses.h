#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/graph/objective.h"
#include "models/losses/config.h"
#include "runtime/base/dtype.h"
#include "runtime/tensor/shape.h"

namespace rondo {

// tf.keras' losses by their names and short names: "categorical_crossentropy",
// "sparse_categorical_crossentropy", "binary_crossentropy", "mean_squared_error" ("mse"),
// "mean_absolute_error" ("mae"), "mean_absolute_percentage_error" ("mape"), "mean_squared_logarithmic_error"
// ("msle"), "hinge", "squared_hinge", "categorical_hinge", "kl_divergence" ("kullback_leibler_divergence",
// "kld"), "poisson", "log_cosh" ("logcosh"), "huber" ("huber_loss"), "cosine_similarity"
// ("cosine_proximity"). Throws InvalidArgument that lists the names.
Loss loss_by_name(std::string_view name);
// The first of its names.
std::string_view loss_name(Loss loss);

// Resolves a compile call's loss and metrics for a model output of shape `output` (one sample). "accuracy"
// and "acc" become binary accuracy where the last axis has one element, else sparse or categorical accuracy
// after the loss's labels, as in tf.keras; "crossentropy" and "ce" likewise. Further metrics:
// "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy", "top_k_categorical_accuracy",
// "sparse_top_k_categorical_accuracy", "root_mean_squared_error" ("rmse"), "auc", "precision", "recall" (with
// large letters too), and every loss's name for its mean; "cosine_similarity" as a metric is the similarity
// itself, not its negative. A name that comes up again gets _1, _2, ... behind it. Throws InvalidArgument for
// an unknown name, for numbers out of range, and for a metric whose labels are not those of the loss.
Objective make_objective(const LossConfig& loss, const std::vector<MetricConfig>& metrics,
                         const Shape& output);

// Labels of one sample as a loss wants them. Throws InvalidArgument that names the loss, what it wants, what
// `data` has, and which loss would fit.
void check_labels(const Objective& objective, const Shape& output, const Shape& label_shape,
                  DType label_dtype, std::string_view data);

}  // namespace rondo
