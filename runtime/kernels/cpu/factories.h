// The makers of the kernels of this folder, one for each family; cpu_backend.cpp joins them.
#pragma once

#include <memory>

#include "runtime/kernels/batch_norm.h"
#include "runtime/kernels/conv.h"
#include "runtime/kernels/dense.h"
#include "runtime/kernels/elementwise.h"
#include "runtime/kernels/loss.h"
#include "runtime/kernels/pool.h"
#include "runtime/kernels/step.h"
#include "runtime/kernels/update.h"

namespace rondo::cpu {

struct Context;
using ContextPtr = std::shared_ptr<const Context>;

std::unique_ptr<Conv2DKernel> make_conv2d(ContextPtr context, const Conv2DSpec& spec);
std::unique_ptr<DenseKernel> make_dense(ContextPtr context, const DenseSpec& spec);
std::unique_ptr<Pool2DKernel> make_pool2d(ContextPtr context, const Pool2DSpec& spec);
std::unique_ptr<BatchNormKernel> make_batch_norm(ContextPtr context, const BatchNormSpec& spec);
std::unique_ptr<ActivationKernel> make_activation(ContextPtr context, const ActivationFunction& function,
                                                  const TensorDesc& desc);
std::unique_ptr<SoftmaxKernel> make_softmax(ContextPtr context, const TensorDesc& desc);
std::unique_ptr<DropoutKernel> make_dropout(ContextPtr context, const DropoutSpec& spec);
std::unique_ptr<AddKernel> make_add(ContextPtr context, const TensorDesc& desc);
std::unique_ptr<ConcatKernel> make_concat(ContextPtr context, const ConcatSpec& spec);
std::unique_ptr<ReorderKernel> make_reorder_kernel(ContextPtr context, const TensorDesc& from,
                                                   const TensorDesc& to);
std::unique_ptr<LossKernel> make_loss(ContextPtr context, const LossSpec& spec);
std::unique_ptr<MetricKernel> make_metric(ContextPtr context, const MetricSpec& spec);
std::unique_ptr<UpdateKernel> make_update(ContextPtr context, const UpdateSpec& spec);
std::unique_ptr<SquareSumKernel> make_square_sum(ContextPtr context, float clip_value);
std::unique_ptr<ClipKernel> make_clip(ContextPtr context, double limit);
std::unique_ptr<TailKernel> make_tail(ContextPtr context);
std::unique_ptr<LossScaleKernel> make_loss_scale(const LossScaling& scaling);

// Throws InvalidArgument where `desc` is not float32 or has an empty axis (a plan is never made for no rows).
void require_float(const TensorDesc& desc, const char* what);
// ... or is not canonical.
void require_canonical(const TensorDesc& desc, const char* what);

}  // namespace rondo::cpu
