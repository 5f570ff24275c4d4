// flow_task: a loop or a branch as one task, which a device runs without decisions of the host, so
// that a plan continues without waiting. Planning makes flow tasks of small control flow whose
// steps are all kernels; see docs/decisions.md.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/kernel.h"
#include "core/runtime/task_program.h"

namespace shmap {

class FlowTask {
 public:
  virtual ~FlowTask() = default;
  // Called in the task; call.scratch has scratch_bytes() bytes.
  virtual void run(const KernelCall& call, const TaskProgram::Caller& caller) const = 0;
  virtual std::int64_t scratch_bytes() const = 0;
  // For a task that threads may share (branch_task_p): the best number of parts for a call.
  virtual int parts(const KernelCall& /*call*/, int /*workers*/) const { return 1; }
  virtual Cost cost() const = 0;
  virtual std::string text() const = 0;  // "scan of 500"
  virtual std::vector<const Jaxpr*> programs() const = 0;
};

// Operands: constants, the carry, xs; results: the carry, ys. `body`: the program (constants,
// carry, one x of each of xs) -> (carry, one y of each of ys), made with loop_owned(). `merged`:
// null, or `merged_trips` trips as one program, made by merge_trips().
struct ScanTask {
  std::shared_ptr<const TaskProgram> body, merged;
  std::int64_t merged_trips = 1;
  std::int64_t length = 0;
  bool reverse = false;
  std::size_t consts = 0, carry = 0;
};
// Operands: the constants of the condition, the constants of the body, the carry; results: the
// carry.
struct WhileTask {
  std::shared_ptr<const TaskProgram> test, body;
  std::size_t test_consts = 0, body_consts = 0;
};
// Operands: the index (a bool, or an integer that is clamped), then the operands of the branches.
struct CondTask {
  std::vector<std::shared_ptr<const TaskProgram>> branches;
};
std::shared_ptr<const FlowTask> make_flow_task(ScanTask task);
std::shared_ptr<const FlowTask> make_flow_task(WhileTask task);
std::shared_ptr<const FlowTask> make_flow_task(CondTask task);
// The argument `owned` of TaskProgram::make for the body of a loop, which owns the memory of its
// carry.
std::vector<int> loop_owned(std::size_t binders, std::size_t first_carry, std::size_t carry);

extern Primitive flow_task_p;
// A CondTask whose branches are each one kernel call or a copy: threads share it, so that it may
// take as long as the kernels do (TaskProgram::is_shared).
extern Primitive branch_task_p;
struct FlowTaskParams : ParamsOf<FlowTaskParams> {
  std::shared_ptr<const FlowTask> task;
  std::vector<ShapedArray> results;
  const detail::MeshImpl* on = nullptr;
  void visit(ParamVisitor& v) const override;
};

// The kernel for backends whose devices run host code.
void run_flow_task(const KernelCall& call);
std::int64_t flow_task_scratch(const KernelCall& call);
int branch_task_parts(const KernelCall& call, int workers);

}  // namespace shmap
