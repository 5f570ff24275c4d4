// OwnedCall: a kernel call that outlives its step, because it is queued or captured into a graph.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device/stream.h"
#include "core/runtime/kernel.h"
#include "core/runtime/op_site.h"

namespace shmap {

// Holds copies of everything that the call refers to. The object is the args of the call's task,
// which deletes the object at its end.
class OwnedCall {
 public:
  // operands: the operands of the step. The values of literals among them are copied.
  OwnedCall(const KernelCall& call, KernelFn run, void* scratch, const OpSite& site,
            std::span<const Array> operands);

  // The kernel by which an addition in place may add to this call's result directly, or null.
  KernelFn accumulate = nullptr;

  // The functions of a Task whose args are an OwnedCall.
  static void run_task(void* args, const TaskContext& context);
  // The Task::join of an addition in place: the kernel of the preceding task adds its result
  // directly. Each call reaches its own fault point, and errors name the call's own site.
  static bool join(void* args, const Task& before, const TaskContext& context);
  static std::string describe_task(const void* args);
  static void drop(void* args) noexcept;

 private:
  Types in_types() const { return Types(types_).first(in_.size()); }
  Types out_types() const { return Types(types_).subspan(in_.size()); }
  // The call without the members that run_task alone sets; `out` may be the results of another
  // call.
  KernelCall call(std::span<void* const> out, const TaskContext& context) const;

  KernelFn run_;
  void* scratch_;
  OpSite site_;
  std::unique_ptr<Params> params_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  std::vector<ShapedArray> types_;  // operands, then results
  std::vector<std::uint64_t> literals_;
  std::uint32_t literal_mask_;
};

}  // namespace shmap
