#include "core/compiler/passes/schedule.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "core/compiler/passes/eqn_order.h"
#include "core/compiler/passes/pass.h"
#include "core/compiler/passes/rewriter.h"

namespace shmap {

namespace {

// The number of ready equations that are considered for the next position. Considering more would
// lengthen the lifetimes of values by more memory than the hidden time is worth.
constexpr int kWindow = 64;

struct Timed {
  double ready_ns = 0;
  double cost_ns = 0;
  bool comm = false;
};

// Collectives keep their order among each other; so do effects.
EqnOrder order_of(const ProgramIndex& program) {
  EqnOrder order(program);
  int last_comm = -1, last_effect = -1;
  for (int i = 0; i < program.size(); ++i) {
    const Eqn& e = program.eqn(i);
    // Equations with programs inside may hold collectives, so that they keep their order among the
    // collectives too.
    if (e.primitive->group || e.primitive->interpret)
      order.keep_behind(std::exchange(last_comm, i), i);
    if (has_effect(e)) order.keep_behind(std::exchange(last_effect, i), i);
  }
  return order;
}

}  // namespace

double scheduled_ns(const Eqn& e, const Rates& rates) {
  if (!e.primitive->group) return rates.ns(estimated_work(e));
  double bytes = 0;
  for (const Atom& a : e.in) bytes += static_cast<double>(a.type().nbytes());
  return bytes / rates.link_bytes_per_ns;
}

JaxprRef schedule(const Jaxpr& jaxpr, const Rates& rates) {
  EqnOrder order = order_of(ProgramIndex(jaxpr));
  const auto n = static_cast<int>(jaxpr.eqns.size());
  std::vector<Timed> tasks;
  for (const Eqn& e : jaxpr.eqns)
    tasks.push_back({0, scheduled_ns(e, rates), e.primitive->group != nullptr});
  const auto task = [&](int i) -> Timed& { return tasks[static_cast<std::size_t>(i)]; };
  std::set<int> compute, comm;  // equations that are ready, in program order
  const auto unblock = [&](int i) { (task(i).comm ? comm : compute).insert(i); };
  for (int i = 0; i < n; ++i)
    if (order.is_ready(i)) unblock(i);
  Rewriter made(jaxpr);
  bool moved = false;
  double compute_ns = 0, comm_ns = 0;  // the times at which the streams of each kind are free
  for (int placed = 0; placed < n; ++placed) {
    int next;
    if (!comm.empty()) {
      next = *comm.begin();
      comm.erase(comm.begin());
      comm_ns = std::max(comm_ns, task(next).ready_ns) + task(next).cost_ns;
    } else {
      auto best = compute.begin();
      int looked = 0;
      for (auto it = compute.begin(); it != compute.end() && looked < kWindow; ++it, ++looked) {
        if (task(*it).ready_ns < task(*best).ready_ns) best = it;
        if (task(*best).ready_ns <= compute_ns) break;
      }
      next = *best;
      compute.erase(best);
      compute_ns = std::max(compute_ns, task(next).ready_ns) + task(next).cost_ns;
    }
    moved = moved || next != placed;
    made.add(jaxpr.eqns[static_cast<std::size_t>(next)]);
    const double done = task(next).comm ? comm_ns : compute_ns;
    order.place(next, [&](int later, bool is_ready) {
      task(later).ready_ns = std::max(task(later).ready_ns, done);
      if (is_ready) unblock(later);
    });
  }
  return moved ? made.finish() : JaxprRef(&jaxpr);
}

void register_pass_schedule() {
  register_pass({.order = PassOrder::schedule,
                 .name = "schedule",
                 .run = [](const Jaxpr& jaxpr, const PassContext& context) {
                   return schedule(jaxpr, rates(context.kind()));
                 }});
}

}  // namespace shmap
