// Which results of loops and branches depend on some of their operands.
#include "core/transforms/autodiff/partial_eval.h"
#include "core/transforms/control_flow/derivatives.h"
#include "core/transforms/control_flow/flow_rules.h"

namespace shmap {

Flags spread_to_carries(const Jaxpr& body, std::size_t first, std::size_t carries, Flags& of) {
  for (;;) {
    Flags depends = dependent_results(body, of);
    bool grew = false;
    for (std::size_t k = 0; k < carries; ++k) {
      if (of[first + k] || !depends[k]) continue;
      of[first + k] = grew = true;
    }
    if (!grew) return depends;
  }
}

Flags depends_scan(const Params& params, const Flags& of) {
  const auto& p = params_as<ScanLoopParams>(params);
  const std::size_t first = count(p.num_consts), carries = count(p.num_carry);
  Flags inside = of;
  Flags found = spread_to_carries(*p.jaxpr, first, carries, inside);
  // A carry also depends on its init, which is the result where there are no trips.
  for (std::size_t k = 0; k < carries; ++k) found[k] = inside[first + k];
  return found;
}

Flags depends_while(const Params& params, const Flags& of) {
  const auto& p = params_as<WhileParams>(params);
  const auto tests = static_cast<std::ptrdiff_t>(p.cond_nconsts);
  const auto first = static_cast<std::ptrdiff_t>(p.body_nconsts);
  Flags inside(of.begin() + tests, of.end());
  const std::size_t carries = inside.size() - count(p.body_nconsts);
  spread_to_carries(*p.body_jaxpr, count(p.body_nconsts), carries, inside);
  Flags tested(of.begin(), of.begin() + tests);
  tested.insert(tested.end(), inside.begin() + first, inside.end());
  // The condition decides how many trips all carries go through.
  if (dependent_results(*p.cond_jaxpr, tested)[0]) return Flags(carries, true);
  return {inside.begin() + first, inside.end()};
}

Flags depends_cond(const Params& params, const Flags& of) {
  const auto& p = params_as<CondParams>(params);
  Flags found(p.branches[0]->outs.size(), of[0]);  // operand 0 is the index
  const Flags inside(of.begin() + 1, of.end());
  for (const JaxprRef& branch : p.branches) {
    const Flags own = dependent_results(*branch, inside);
    for (std::size_t o = 0; o < found.size(); ++o) found[o] = found[o] || own[o];
  }
  return found;
}

}  // namespace shmap
