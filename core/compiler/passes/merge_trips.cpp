#include "core/compiler/passes/merge_trips.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/compiler/passes/rewriter.h"

namespace shmap {

namespace {

// Limits for a program of merged trips. More trips save little, and take longer to compile.
constexpr std::int64_t kMergedEquations = 64;
constexpr std::int64_t kMostMergedTrips = 32;
// For longer trips, the cost of launching a program is negligible.
constexpr double kMergedTripNs = 2000;

}  // namespace

std::int64_t trips_to_merge(const Jaxpr& body, std::int64_t length, double nanoseconds) {
  if (nanoseconds > kMergedTripNs || body.eqns.empty()) return 1;
  for (const Eqn& e : body.eqns)
    if (e.primitive->interpret) return 1;
  const auto equations = static_cast<std::int64_t>(body.eqns.size());
  const std::int64_t most =
      std::clamp<std::int64_t>(std::min(kMergedEquations / equations, length), 1, kMostMergedTrips);
  // Prefers a slightly smaller number that divides the length, so that no trips are left over.
  for (std::int64_t trips = most; 2 * trips > most; --trips)
    if (length % trips == 0) return trips;
  return most;
}

JaxprRef merge_trips(const Jaxpr& body, std::size_t consts, std::size_t carry, std::int64_t trips) {
  for (std::size_t k = 0; k < carry; ++k)
    if (body.outs[k].is_literal() || body.outs[k].type() != body.binders[consts + k]->type)
      return {};
  Rewriter made(body);
  std::vector<VarRef> binders;
  const auto binder = [&](std::size_t i) {
    binders.push_back(make_ref<const Var>(body.binders[i]->type));
    return Atom(binders.back());
  };
  std::vector<Atom> before;  // the constants and the carry at the start of a trip
  for (std::size_t i = 0; i < consts + carry; ++i) before.push_back(binder(i));
  std::vector<Atom> ys;
  for (std::int64_t trip = 0; trip < trips; ++trip) {
    std::vector<Atom> args = before;
    for (std::size_t i = before.size(); i < body.binders.size(); ++i) args.push_back(binder(i));
    const std::vector<Atom> outs = made.write_out(body, args, Rewriter::Vars::fresh);
    for (std::size_t o = 0; o < outs.size(); ++o) {
      if (o < carry)
        before[consts + o] = outs[o];
      else
        ys.push_back(outs[o]);
    }
  }
  std::vector<Atom> outs(before.begin() + static_cast<std::ptrdiff_t>(consts), before.end());
  outs.insert(outs.end(), ys.begin(), ys.end());
  return made.finish(std::move(binders), std::move(outs));
}

}  // namespace shmap
