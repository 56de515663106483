// Steps for the masks of sequences: values (rows, positions...) of 0 and 1, without gradients.
#pragma once

#include <string>

#include "models/graph/layer.h"
#include "models/graph/plan_builder.h"

namespace rondo {

// The mask of `in` (rows, positions..., features): 1 where a feature differs from `value`. With `by_element`
// every element of `in` is a position.
ValueId append_find_mask(PlanBuilder& builder, ValueId in, float value, bool by_element,
                         const std::string& name);

// `in` (rows, positions..., features) times a factor for each position, with its gradient.
ValueId append_mask_scale(PlanBuilder& builder, ValueId in, ValueId factors, const std::string& name);

// 1 where both are; either may be -1, which counts everything.
ValueId append_mask_and(PlanBuilder& builder, ValueId a, ValueId b, const std::string& name);

// The mask of a layer that joins its inputs element by element: those of the inputs that have one, joined.
void join_masks(PlanBuilder& builder, const Layer::Call& call);

// The factors with which a mean over the positions of `mask` (rows, positions) is one over those that count.
ValueId append_mask_shares(PlanBuilder& builder, ValueId mask, const std::string& name);

// Attention's scores (rows, heads, queries, keys) with -1e9 added where a position does not count; masks may
// be -1.
ValueId append_hide_scores(PlanBuilder& builder, ValueId scores, ValueId query_mask, ValueId key_mask,
                           const std::string& name);

}  // namespace rondo
