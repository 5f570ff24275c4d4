// A pass that makes tasks of control flow with short trips: a device runs its loop by itself,
// instead of the host launching a plan for each trip.
//
// Loops and branches become `flow_task` where their steps are kernels or views, without collectives
// that move data and without effects, and a trip is short. Branches that consist of one kernel call
// each may be long, because threads share the call (`branch_task`). The pass does nothing for
// devices that cannot run host code. The same values, to the last bit.

#include <algorithm>

#include "core/compiler/passes/inline_calls.h"
#include "core/compiler/passes/merge_trips.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/rewriter.h"
#include "core/compiler/passes/simplify.h"
#include "core/ir/types_of.h"
#include "core/runtime/flow_task.h"
#include "core/transforms/control_flow/flow_primitives.h"
#include "core/transforms/control_flow/task_time.h"

namespace shmap {

namespace {

// If the kernels of a trip or branch take longer than this on one core, the host launches them, and
// each kernel gets all cores.
constexpr double kFlowTaskNs = 40'000;
// Long branches with more equations are not examined, since they hardly ever become a single call.
constexpr std::size_t kFusedEquations = 16;

bool is_flow(const Eqn& e) { return e.primitive->programs.control_flow != ControlFlow::none; }

class FlowTaskMaker {
 public:
  explicit FlowTaskMaker(const detail::MeshImpl& mesh)
      : mesh_(mesh), kind_(mesh.backend().kind()) {}

  // Null where the equation stays as it is. shared: whether threads share the task.
  std::shared_ptr<const FlowTask> task(const Eqn& e, bool* shared) const {
    bool is_short = true, is_small = true;
    for (const Jaxpr* inner : inner_jaxprs(*e.params)) {
      is_short = is_short && task_nanoseconds(*inner, kind_) <= kFlowTaskNs;
      is_small = is_small && inner->eqns.size() <= kFusedEquations;
    }
    *shared = false;
    switch (e.primitive->programs.control_flow) {
      case ControlFlow::scan:
        return is_short ? scan(e) : nullptr;
      case ControlFlow::while_loop:
        return is_short ? loop(e) : nullptr;
      case ControlFlow::cond: {
        if (!is_short && !is_small) return nullptr;
        std::shared_ptr<const FlowTask> task = branches(e, shared);
        return is_short || *shared ? task : nullptr;
      }
      case ControlFlow::none:
        break;
    }
    return nullptr;
  }

 private:
  std::shared_ptr<const TaskProgram> program(const Jaxpr& jaxpr, std::vector<int> owned) const {
    return TaskProgram::make(run_passes(jaxpr, {mesh_}), mesh_, std::move(owned));
  }
  std::shared_ptr<const TaskProgram> program(const Jaxpr& jaxpr) const {
    return program(jaxpr, std::vector<int>(jaxpr.binders.size(), -1));
  }

  std::shared_ptr<const FlowTask> scan(const Eqn& e) const {
    const auto& p = params_as<ScanLoopParams>(*e.params);
    // the results are the inits, and the host need not run anything
    if (p.length == 0) return nullptr;
    ScanTask task;
    task.length = p.length;
    task.reverse = p.reverse;
    task.consts = count(p.num_consts);
    task.carry = count(p.num_carry);
    task.body = program(*p.jaxpr, loop_owned(p.jaxpr->binders.size(), task.consts, task.carry));
    if (!task.body) return nullptr;
    const JaxprRef body = simplify(*inline_calls(*p.jaxpr));
    const std::int64_t trips = trips_to_merge(*body, p.length, task_nanoseconds(*body, kind_));
    if (trips > 1) {
      const JaxprRef merged = merge_trips(*body, task.consts, task.carry, trips);
      if (merged)
        task.merged = program(*merged, loop_owned(merged->binders.size(), task.consts, task.carry));
      if (task.merged) task.merged_trips = trips;
    }
    return make_flow_task(std::move(task));
  }

  std::shared_ptr<const FlowTask> loop(const Eqn& e) const {
    const auto& p = params_as<WhileParams>(*e.params);
    WhileTask task;
    task.test_consts = count(p.cond_nconsts);
    task.body_consts = count(p.body_nconsts);
    const std::size_t binders = p.body_jaxpr->binders.size();
    task.test = program(*p.cond_jaxpr);
    task.body =
        program(*p.body_jaxpr, loop_owned(binders, task.body_consts, binders - task.body_consts));
    return task.test && task.body ? make_flow_task(std::move(task)) : nullptr;
  }

  std::shared_ptr<const FlowTask> branches(const Eqn& e, bool* shared) const {
    CondTask task;
    bool all_shared = true;
    for (const JaxprRef& b : params_as<CondParams>(*e.params).branches) {
      task.branches.push_back(program(*b));
      if (!task.branches.back()) return nullptr;
      all_shared = all_shared && task.branches.back()->is_shared();
    }
    *shared = all_shared;
    return make_flow_task(std::move(task));
  }

  const detail::MeshImpl& mesh_;
  DeviceKind kind_;
};

// Does not run under SHMAP_CHECK_NANS, which checks each operation's results (`merges`).
JaxprRef make_flow_tasks(const Jaxpr& jaxpr, const PassContext& context) {
  if (!flow_task_p.kernel(context.kind()).run ||
      std::none_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), [](const Eqn& e) { return is_flow(e); }))
    return JaxprRef(&jaxpr);
  const FlowTaskMaker maker(context.mesh);
  Rewriter made(jaxpr);
  for (int i = 0; i < static_cast<int>(jaxpr.eqns.size()); ++i) {
    Eqn e = jaxpr.eqns[static_cast<std::size_t>(i)];
    if (!is_flow(e) || e.out.empty()) continue;
    bool shared = false;
    std::shared_ptr<const FlowTask> task = maker.task(e, &shared);
    if (!task) continue;
    auto params = std::make_shared<FlowTaskParams>();
    params->task = std::move(task);
    params->on = &context.mesh;
    params->results = types_of(e.out);
    e.primitive = shared ? &branch_task_p : &flow_task_p;
    e.params = std::move(params);
    made.put(i, std::move(e));
  }
  return made.is_edited() ? made.finish() : JaxprRef(&jaxpr);
}

}  // namespace

void register_pass_flow_tasks() {
  register_pass({.order = PassOrder::flow_tasks,
                 .name = "flow_tasks",
                 .run = make_flow_tasks,
                 .merges = true});
}

}  // namespace shmap
