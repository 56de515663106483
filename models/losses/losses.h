#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/graph/objective.h"
#include "models/losses/config.h"
#include "runtime/tensor/shape.h"

namespace rondo {

struct SampleField;

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

// What a whole model is compiled with.
struct ObjectiveRequest {
  OutputLosses loss;
  LossWeights loss_weights = {};
  OutputMetrics metrics = {};
  OutputMetrics weighted_metrics = {};
};

// Resolves it for a model with these outputs (shapes of one sample), as tf.keras: outputs without a loss are
// not trained, and not measured unless they have metrics. Of several outputs, the names of losses and metrics
// have the output's in front: "main_loss", "main_accuracy". A weighted metric whose name is taken is called
// "weighted_accuracy", "main_weighted_accuracy". Throws what make_objective throws, with the name of the
// output in front, and InvalidArgument for lists of another length than the outputs', names of outputs that
// are not there, no loss at all, weights that are not finite, and losses of different reductions.
Objectives make_objectives(const ObjectiveRequest& request, const std::vector<Shape>& outputs,
                           const std::vector<std::string>& output_names);

// Of each output what is said for it: of a list, its place; by name, nothing where it is not named. Throws
// InvalidArgument for lists of another length, and for names that are not the outputs'; `what` is "loss".
template <class T>
std::vector<std::optional<T>> of_outputs(const PerOutput<T>& said, const std::vector<std::string>& names,
                                         std::string_view what);

// Labels of one sample, and weights of its losses, as an output's objective wants them. Throws
// InvalidArgument that says what it wants, what `data` has, and which loss would fit.
void check_labels(const Objective& objective, const Shape& output, const SampleField& label,
                  std::string_view data);

}  // namespace rondo
