#include "core/transforms/passes/merge_trips.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace shmap {

namespace {

// Of all trips of a program together. More save little, and take longer to compile.
constexpr std::int64_t kMergedEquations = 64;
constexpr std::int64_t kMostMergedTrips = 32;
// Trips that take longer do not feel what a program costs to run.
constexpr double kMergedTripNs = 2000;

}  // namespace

std::int64_t trips_to_merge(const Jaxpr& body, std::int64_t length, double nanoseconds) {
  if (nanoseconds > kMergedTripNs || body.eqns.empty()) return 1;
  for (const Eqn& e : body.eqns)
    if (e.primitive->interpret) return 1;
  const auto equations = static_cast<std::int64_t>(body.eqns.size());
  return std::clamp<std::int64_t>(std::min(kMergedEquations / equations, length), 1,
                                  kMostMergedTrips);
}

JaxprRef merge_trips(const Jaxpr& body, std::size_t consts, std::size_t carry, std::int64_t trips) {
  for (std::size_t k = 0; k < carry; ++k)
    if (body.outs[k].is_literal() || body.outs[k].type() != body.binders[consts + k]->type)
      return {};
  auto made = make_ref<Jaxpr>();
  made->env = body.env;
  made->checks_variance = body.checks_variance;
  const auto binder = [&](std::size_t i) {
    made->binders.push_back(make_ref<const Var>(body.binders[i]->type));
    return Atom(made->binders.back());
  };
  std::vector<Atom> before;  // the constants and the carry, as a trip finds them
  for (std::size_t i = 0; i < consts + carry; ++i) before.push_back(binder(i));
  std::vector<Atom> ys;
  for (std::int64_t trip = 0; trip < trips; ++trip) {
    VarMap<Atom> values;
    for (std::size_t i = 0; i < body.binders.size(); ++i)
      values.emplace(body.binders[i].get(), i < before.size() ? before[i] : binder(i));
    const auto value = [&](const Atom& a) { return a.is_literal() ? a : values.at(a.var()); };
    for (const Eqn& e : body.eqns) {
      Eqn copy{e.primitive, {}, e.params, {}, e.source};
      for (const Atom& a : e.in) copy.in.push_back(value(a));
      for (const VarRef& v : e.out) {
        copy.out.push_back(make_ref<const Var>(v->type));
        values.emplace(v.get(), Atom(copy.out.back()));
      }
      made->eqns.push_back(std::move(copy));
    }
    for (std::size_t o = 0; o < body.outs.size(); ++o) {
      if (o < carry)
        before[consts + o] = value(body.outs[o]);
      else
        ys.push_back(value(body.outs[o]));
    }
  }
  made->outs.assign(before.begin() + static_cast<std::ptrdiff_t>(consts), before.end());
  made->outs.insert(made->outs.end(), ys.begin(), ys.end());
  check_pass(*made, "merge_trips");
  return made;
}

}  // namespace shmap
