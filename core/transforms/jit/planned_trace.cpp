#include "core/transforms/jit/planned_trace.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/compiler/lowering/per_device.h"
#include "core/compiler/passes/pass.h"
#include "core/ir/divergence.h"
#include "core/runtime/reshard.h"
#include "core/runtime/same_values.h"

namespace shmap {
namespace {

// The plans of an equation's own programs, which live as long as the plan that has the equation. A
// program that the equation makes when it runs, as a user's primitive may, has no plan: another
// program may have its address the next time.
class BodyPlans final : public ControlState {
 public:
  explicit BodyPlans(const Params& params) { add_programs(params); }

  // That program's plan, which the first call makes; null where the program is not the equation's
  // own. Any thread.
  Plan* plan_of(const Jaxpr& jaxpr, const detail::MeshImpl& mesh) {
    const auto it = plans_.find(&jaxpr);
    if (it == plans_.end()) return nullptr;
    Body& body = it->second;
    std::call_once(body.once, [&] {
      JaxprRef planned = run_passes(jaxpr, {mesh});
      const ProgramMark mark = make_program_mark(mesh, *planned);
      auto plan = std::make_unique<Plan>(&mesh, std::move(planned), std::vector<Array>(), mark,
                                         run_control);
      const std::lock_guard lock(mutex_);
      in_order_.push_back(plan.get());
      body.plan = std::move(plan);
    });
    return body.plan.get();
  }

  std::string text() const override {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const Plan* plan : in_order_) text += plan->text();
    return text;
  }

 private:
  void add_programs(const Params& params) {
    for (const Jaxpr* jaxpr : inner_jaxprs(params)) {
      if (!plans_.try_emplace(jaxpr).second) continue;
      for (const Eqn& eqn : jaxpr->eqns) add_programs(*eqn.params);
    }
  }

  struct Body {
    std::once_flag once;
    std::unique_ptr<Plan> plan;
  };
  std::map<const Jaxpr*, Body> plans_;
  mutable std::mutex mutex_;
  std::vector<const Plan*> in_order_;  // in the order of their first runs; under mutex_
};

// Interprets an equation on blocks; each program inside of it runs as a plan.
class PlannedTrace final : public PerDeviceTrace {
 public:
  PlannedTrace(const detail::MeshImpl& mesh, BodyPlans& bodies)
      : PerDeviceTrace(&mesh, {false, false}), bodies_(bodies) {}

  bool evaluate(const Jaxpr& jaxpr, std::vector<Array>& args, std::vector<Array>& out) override {
    // Printing shows only the devices that took this branch, which a captured task could not know.
    if (divergence() && std::any_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), has_effect)) return false;
    Plan* const plan = bodies_.plan_of(jaxpr, *mesh());
    if (plan == nullptr) return false;
    admit(args, "a program inside", {});
    for (Array& x : args) x = as_stored(std::move(x), mesh());
    out = plan->run(std::move(args));
    for (std::size_t o = 0; o < out.size(); ++o) out[o] = mine(out[o], jaxpr.outs[o].type());
    return true;
  }

  // The same blocks as a value of this trace.
  Array mine(const Array& x, const ShapedArray& type) const {
    return relabel(*stored_of(x), type, nullptr, id(), true);
  }

 private:
  BodyPlans& bodies_;
};

}  // namespace

bool may_be_planned(const Jaxpr& jaxpr) {
  if (!divergence()) return true;
  try {
    for (const DivergentScope* s = divergence(); s; s = s->outer())
      check_divergent_program(jaxpr, s->what(), s->axes());
  } catch (const CollectiveError&) {  // thrown again where the collective is reached
    return false;
  }
  return std::none_of(jaxpr.eqns.begin(), jaxpr.eqns.end(), has_effect);
}

void run_control(const detail::MeshImpl& mesh, const Eqn& eqn, std::span<Array> in,
                 std::span<Array> out, std::unique_ptr<ControlState>& state) {
  BodyPlans& bodies = [&]() -> BodyPlans& {
    static std::mutex mutex;  // two threads may run the equation for the first time
    const std::lock_guard lock(mutex);
    if (!state) state = std::make_unique<BodyPlans>(*eqn.params);
    return static_cast<BodyPlans&>(*state);
  }();
  PlannedTrace trace(mesh, bodies);
  for (Array& x : in)
    if (node_of(x)->kind != NodeKind::literal) x = trace.mine(x, node_of(x)->type);
  TraceScope scope(trace);
  eqn.primitive->interpret(in, *eqn.params, out, eqn.source);
  for (std::size_t o = 0; o < out.size(); ++o) {
    const Array x = as_stored(std::move(out[o]), &mesh);
    out[o] = relabel(*stored_of(x), eqn.out[o]->type, nullptr, 0, true);
  }
}

}  // namespace shmap
