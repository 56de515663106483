// The makers of the kernels of this folder, one for each family; cuda_backend.cpp joins them.
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

namespace rondo::cuda {

class Context;
using ContextPtr = std::shared_ptr<Context>;

std::unique_ptr<Conv2DKernel> make_conv2d(ContextPtr context, const Conv2DSpec& spec);
std::unique_ptr<DenseKernel> make_dense(ContextPtr context, const DenseSpec& spec);
std::unique_ptr<Pool2DKernel> make_pool2d(const ContextPtr& context, const Pool2DSpec& spec);
// Throws InvalidArgument.
void check_batch_norm(const BatchNormSpec& spec);
std::unique_ptr<BatchNormKernel> make_batch_norm(const ContextPtr& context, const BatchNormSpec& spec);
std::unique_ptr<NormReluKernel> make_norm_relu(const ContextPtr& context, const NormReluSpec& spec);
std::unique_ptr<ActivationKernel> make_activation(const ActivationFunction& function, const TensorDesc& desc);
std::unique_ptr<SoftmaxKernel> make_softmax(const TensorDesc& desc);
std::unique_ptr<DropoutKernel> make_dropout(const ContextPtr& context, const DropoutSpec& spec);
std::unique_ptr<AddKernel> make_add(const TensorDesc& desc);
std::unique_ptr<ConcatKernel> make_concat(const ConcatSpec& spec);
std::unique_ptr<ReorderKernel> make_reorder(const TensorDesc& from, const TensorDesc& to);
std::unique_ptr<RoundKernel> make_round(DType to);
std::unique_ptr<LossKernel> make_loss(const ContextPtr& context, const LossSpec& spec);
std::unique_ptr<MetricKernel> make_metric(const ContextPtr& context, const MetricSpec& spec);
std::unique_ptr<UpdateKernel> make_update(const ContextPtr& context, const UpdateSpec& spec);
std::unique_ptr<SquareSumKernel> make_square_sum(const ContextPtr& context, float clip_value);
std::unique_ptr<ClipKernel> make_clip(double limit);
std::unique_ptr<TailKernel> make_tail();
std::unique_ptr<LossScaleKernel> make_loss_scale(const LossScaling& scaling);

}  // namespace rondo::cuda
