#include "runtime/kernels/cpu/operation.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"

namespace rondo::cpu {
namespace {

bool is_output(int argument) {
  switch (argument) {
    case DNNL_ARG_DST:
    case DNNL_ARG_DIFF_SRC:
    case DNNL_ARG_DIFF_WEIGHTS:
    case DNNL_ARG_DIFF_BIAS:
      return true;
    default:
      return false;
  }
}

std::string implementation_name(const dnnl::primitive_desc_base& desc) {
  const char* name = nullptr;
  dnnl_primitive_desc_query(desc.get(), dnnl_query_impl_info_str, 0, static_cast<void*>(&name));
  return name == nullptr ? "unknown" : name;
}

}  // namespace

dnnl::primitive_attr base_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

bool is_reference(const dnnl::primitive_desc_base& desc) {
  return implementation_name(desc).find("ref") != std::string::npos;
}

MemoryDesc argument_desc(const dnnl::primitive_desc_base& desc, int argument) {
  return desc.query_md(dnnl::query::exec_arg_md, argument);
}

BoundPrimitive::BoundPrimitive(const Context& context, const dnnl::primitive_desc_base& desc)
    : engine_(context.engine), primitive_(desc.get()) {
  const MemoryDesc scratch = desc.query_md(dnnl::query::exec_arg_md, DNNL_ARG_SCRATCHPAD);
  scratch_bytes_ = static_cast<int64_t>(scratch.get_size());
  if (scratch_bytes_ > 0) add(DNNL_ARG_SCRATCHPAD, scratch);
}

void BoundPrimitive::add(int argument, const MemoryDesc& desc) {
  slots_.push_back({argument, dnnl::memory(desc, engine_, DNNL_MEMORY_NONE), nullptr});
  arguments_.push_back({argument, slots_.back().memory.get()});
}

void BoundPrimitive::set(int argument, const void* data) {
  for (auto& slot : slots_) {
    if (slot.argument != argument || slot.data == data) continue;
    // oneDNN writes zeros into the padding of a memory whose pointer it is given; it holds zeros already.
    slot.memory.set_data_handle(const_cast<void*>(data));
    slot.data = data;
  }
}

void BoundPrimitive::execute(const Context& context, void* scratch) {
  if (scratch_bytes_ > 0) set(DNNL_ARG_SCRATCHPAD, scratch);
  const auto status = dnnl_primitive_execute(primitive_.get(), context.stream.get(),
                                             static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) {
    raise<InternalError>("oneDNN failed to execute a primitive (status {})", static_cast<int>(status));
  }
}

std::unique_ptr<BoundPrimitive> make_reorder(const Context& context, const MemoryDesc& from,
                                             const MemoryDesc& to) {
  const dnnl::reorder::primitive_desc desc(context.engine, from, context.engine, to, base_attributes());
  auto reorder = std::make_unique<BoundPrimitive>(context, desc);
  reorder->add(DNNL_ARG_FROM, from);
  reorder->add(DNNL_ARG_TO, to);
  return reorder;
}

Operation::Operation(std::shared_ptr<const Context> context, const dnnl::primitive_desc_base& desc,
                     const std::vector<Operand>& operands)
    : context_(std::move(context)),
      main_(*context_, desc),
      scratch_bytes_(main_.scratch_bytes()),
      implementation_(implementation_name(desc)) {
  bool reorders = false;
  for (const auto& operand : operands) {
    const MemoryDesc inside = argument_desc(desc, operand.argument);
    main_.add(operand.argument, inside);
    Link link{operand.argument, is_output(operand.argument), {}, nullptr};
    if (!same_memory(inside, operand.outside)) {
      link.shadow = context_->device.allocate(static_cast<int64_t>(inside.get_size()));
      link.reorder = link.output ? make_reorder(*context_, inside, operand.outside)
                                 : make_reorder(*context_, operand.outside, inside);
      link.reorder->set(link.output ? DNNL_ARG_FROM : DNNL_ARG_TO, link.shadow.data());
      main_.set(operand.argument, link.shadow.data());
      scratch_bytes_ = std::max(scratch_bytes_, link.reorder->scratch_bytes());
      reorders = true;
    }
    links_.push_back(std::move(link));
  }
  if (reorders) implementation_ += " + reorders";
}

void Operation::execute(const Execution& on, std::initializer_list<const void*> data) {
  RONDO_CHECK(data.size() == links_.size());
  RONDO_CHECK(scratch_bytes_ == 0 || on.scratch != nullptr);
  context_->use_threads();
  auto pointer = data.begin();
  for (auto& link : links_) {
    const void* outside = *pointer++;
    if (link.reorder == nullptr) {
      main_.set(link.argument, outside);
    } else if (!link.output) {
      link.reorder->set(DNNL_ARG_FROM, outside);
      link.reorder->execute(*context_, on.scratch);
    }
  }
  main_.execute(*context_, on.scratch);
  pointer = data.begin();
  for (auto& link : links_) {
    const void* outside = *pointer++;
    if (link.reorder == nullptr || !link.output) continue;
    link.reorder->set(DNNL_ARG_TO, outside);
    link.reorder->execute(*context_, on.scratch);
  }
}

}  // namespace rondo::cpu
