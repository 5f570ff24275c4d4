#include "core/transforms/passes/schedule.h"

#include <algorithm>
#include <set>

namespace shmap {

namespace {

// Rates of the model, of one device: only their relation counts.
constexpr double kFlopsPerNs = 60;
constexpr double kBytesPerNs = 12;
constexpr double kLinkBytesPerNs = 8;
// How far past the first equation that could run others are looked at: further ones would make
// values live longer than the time that is hidden is worth.
constexpr int kWindow = 64;

struct Task {
  std::vector<std::size_t> after;  // equations that read its results, or keep behind it
  int blockers = 0;
  double ready_ns = 0;
  double cost_ns = 0;
  bool comm = false;
};

double cost_of(const Eqn& e) {
  std::vector<ShapedArray> in, out;
  double bytes = 0;
  for (const Atom& a : e.in) {
    in.push_back(a.type());
    bytes += static_cast<double>(a.type().nbytes());
  }
  if (e.primitive->group) return bytes / kLinkBytesPerNs;
  for (const VarRef& v : e.out) {
    out.push_back(v->type);
    bytes += static_cast<double>(v->type.nbytes());
  }
  if (!e.primitive->cost) return bytes / kBytesPerNs;
  const Cost c = e.primitive->cost(in, *e.params, out);
  return c.flops / kFlopsPerNs + c.bytes / kBytesPerNs;
}

std::vector<Task> make_tasks(const Jaxpr& jaxpr) {
  std::vector<Task> tasks(jaxpr.eqns.size());
  VarMap<std::size_t> maker;
  std::size_t last_comm = tasks.size(), last_effect = tasks.size();
  const auto keep_behind = [&](std::size_t before, std::size_t e) {
    if (before == tasks.size()) return;
    tasks[before].after.push_back(e);
    ++tasks[e].blockers;
  };
  for (std::size_t e = 0; e < tasks.size(); ++e) {
    const Eqn& eqn = jaxpr.eqns[e];
    tasks[e].comm = eqn.primitive->group != nullptr;
    tasks[e].cost_ns = cost_of(eqn);
    for (const Atom& a : eqn.in)
      if (const auto it = maker.find(a.var()); it != maker.end()) keep_behind(it->second, e);
    // Programs inside may hold collectives: they keep their place among those too.
    if (tasks[e].comm || eqn.primitive->interpret) {
      keep_behind(last_comm, e);
      last_comm = e;
    }
    if (has_effect(eqn)) {
      keep_behind(last_effect, e);
      last_effect = e;
    }
    for (const VarRef& v : eqn.out) maker.emplace(v.get(), e);
  }
  return tasks;
}

}  // namespace

JaxprRef schedule(const JaxprRef& jaxpr) {
  std::vector<Task> tasks = make_tasks(*jaxpr);
  std::set<std::size_t> compute, comm;  // those that nothing blocks, in program order
  const auto unblock = [&](std::size_t e) { (tasks[e].comm ? comm : compute).insert(e); };
  for (std::size_t e = 0; e < tasks.size(); ++e)
    if (tasks[e].blockers == 0) unblock(e);
  std::vector<std::size_t> order;
  double compute_ns = 0, comm_ns = 0;  // when each kind of stream is free
  while (order.size() < tasks.size()) {
    std::size_t next;
    if (!comm.empty()) {
      next = *comm.begin();
      comm.erase(comm.begin());
      comm_ns = std::max(comm_ns, tasks[next].ready_ns) + tasks[next].cost_ns;
    } else {
      auto best = compute.begin();
      int looked = 0;
      for (auto it = compute.begin(); it != compute.end() && looked < kWindow; ++it, ++looked) {
        if (tasks[*it].ready_ns < tasks[*best].ready_ns) best = it;
        if (tasks[*best].ready_ns <= compute_ns) break;
      }
      next = *best;
      compute.erase(best);
      compute_ns = std::max(compute_ns, tasks[next].ready_ns) + tasks[next].cost_ns;
    }
    order.push_back(next);
    const double done = tasks[next].comm ? comm_ns : compute_ns;
    for (std::size_t later : tasks[next].after) {
      tasks[later].ready_ns = std::max(tasks[later].ready_ns, done);
      if (--tasks[later].blockers == 0) unblock(later);
    }
  }
  if (std::is_sorted(order.begin(), order.end())) return jaxpr;
  auto scheduled = make_ref<Jaxpr>();
  scheduled->binders = jaxpr->binders;
  scheduled->outs = jaxpr->outs;
  scheduled->env = jaxpr->env;
  scheduled->checks_variance = jaxpr->checks_variance;
  for (std::size_t e : order) scheduled->eqns.push_back(jaxpr->eqns[e]);
  check_pass(*scheduled, "scheduling");
  return scheduled;
}

}  // namespace shmap
