// Dead code elimination: removes equations without effects whose results are not read, also inside
// of programs of equations. A primitive's `prune` removes unused operands and results of its
// programs.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "core/ir/jaxpr.h"

namespace shmap {

// A program of the results in `wanted` alone, without dead code and without arguments that are then
// not read. `kept`: which arguments stay.
struct PrunedJaxpr {
  JaxprRef jaxpr;
  std::vector<bool> kept;
  bool changed = false;  // whether an equation was removed or changed
};

// Equations with effects that have no `prune`: prints, calls of functions with rules that print.
using EffectSet = std::set<const Eqn*>;
extern const EffectSet no_effects;

// The results of prune_jaxpr in one pass. Rules of loops and branches ask for the same program
// several times, at each level of a nest.
struct PruneMemo {
  // Which effects of the programs stay although nothing reads their results; null: all. A memo
  // serves one set.
  const EffectSet* effects = nullptr;
  struct Found {
    JaxprRef asked;  // kept alive, so that no other program gets its address
    PrunedJaxpr pruned;
  };
  std::map<std::pair<const Jaxpr*, std::vector<bool>>, Found> pruned;
};

// The program without its dead code: itself where it has none. All arguments and results stay.
JaxprRef remove_dead_code(const Jaxpr& jaxpr);
JaxprRef remove_dead_code(const Jaxpr& jaxpr, PruneMemo& memo);

PrunedJaxpr prune_jaxpr(const Jaxpr& jaxpr, const std::vector<bool>& wanted);
PrunedJaxpr prune_jaxpr(const Jaxpr& jaxpr, const std::vector<bool>& wanted, PruneMemo& memo);

// The argument of a PruneFn, which sets the last three members, or leaves `pruned` null where
// nothing changes. Wanted results must be kept.
struct PruneCall {
  const Params& params;
  const std::vector<bool>& wanted;  // which results are read
  PruneMemo& memo;                  // to be passed to prune_jaxpr
  std::shared_ptr<const Params> pruned;
  std::vector<bool> kept_in, kept_out;  // which operands and results stay
};

}  // namespace shmap
