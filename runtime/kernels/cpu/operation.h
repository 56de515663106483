#pragma once

#include <initializer_list>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/layout.h"
#include "runtime/kernels/kernel.h"

namespace rondo::cpu {

// A oneDNN primitive with its argument list built once: executing it only swaps data pointers that changed.
// (The C++ interface of oneDNN builds a vector for every execution.)
class BoundPrimitive {
 public:
  BoundPrimitive(const Context& context, const dnnl::primitive_desc_base& desc);

  void add(int argument, const MemoryDesc& desc);
  void set(int argument, const void* data);
  void execute(const Context& context, void* scratch);
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  struct Slot {
    int argument;
    dnnl::memory memory;
    const void* data;
  };
  dnnl::engine engine_;
  dnnl::primitive primitive_;
  int64_t scratch_bytes_;
  std::vector<Slot> slots_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// A primitive between operands of given layouts. Where the primitive wants another layout, a shadow copy of
// the operand is kept and reordered before (inputs) or after (outputs) the primitive.
class Operation {
 public:
  struct Operand {
    int argument;        // DNNL_ARG_...
    MemoryDesc outside;  // how the caller's memory lies
  };
  Operation(std::shared_ptr<const Context> context, const dnnl::primitive_desc_base& desc,
            const std::vector<Operand>& operands);

  // One pointer for each operand, in their order.
  void execute(const Execution& on, std::initializer_list<const void*> data);
  int64_t scratch_bytes() const { return scratch_bytes_; }
  // oneDNN's name of the implementation, and " + reorders" where shadows are used.
  const std::string& implementation() const { return implementation_; }

 private:
  struct Link {
    int argument;
    bool output;
    Buffer shadow;
    std::unique_ptr<BoundPrimitive> reorder;  // null where the layouts agree
  };
  std::shared_ptr<const Context> context_;
  BoundPrimitive main_;
  std::vector<Link> links_;
  int64_t scratch_bytes_ = 0;
  std::string implementation_;
};

// Attributes of every primitive here: working memory comes from the caller.
dnnl::primitive_attr base_attributes();
// The implementation is one of oneDNN's plain reference loops.
bool is_reference(const dnnl::primitive_desc_base& desc);
// The descriptor of one argument of a primitive.
MemoryDesc argument_desc(const dnnl::primitive_desc_base& desc, int argument);

// A reorder primitive between two descriptors of the same axes.
std::unique_ptr<BoundPrimitive> make_reorder(const Context& context, const MemoryDesc& from,
                                             const MemoryDesc& to);

}  // namespace rondo::cpu
