// Dead code: equations whose results nobody reads, and that have no effect; also inside programs
// of equations, whose unused operands and results go where their primitive knows how (prune).
#pragma once
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/ir/jaxpr.h"

namespace shmap {

// The program of those results alone that `wanted` says, without dead code, and without the
// arguments that nobody reads then: `kept` says which stay.
struct PrunedJaxpr {
  JaxprRef jaxpr;
  std::vector<bool> kept;
  bool changed = false;  // whether an equation went, or is another
};

// What was pruned already: rules of loops and branches ask for the same program more than once, and
// so does each level of what is nested. Shared by the calls of one pass.
struct PruneMemo {
  struct Found {
    JaxprRef asked;  // kept alive, so that its address stays its own
    PrunedJaxpr pruned;
  };
  std::map<std::pair<const Jaxpr*, std::vector<bool>>, Found> pruned;
};

// The program without its dead code: itself where it has none. All arguments and results stay.
JaxprRef remove_dead_code(const Jaxpr& jaxpr);
JaxprRef remove_dead_code(const Jaxpr& jaxpr, PruneMemo& memo);

PrunedJaxpr prune_jaxpr(const Jaxpr& jaxpr, const std::vector<bool>& wanted);
PrunedJaxpr prune_jaxpr(const Jaxpr& jaxpr, const std::vector<bool>& wanted, PruneMemo& memo);

// What a PruneFn is called with. It fills the rest, or leaves `pruned` null where all stays as it
// is. A result that is wanted stays.
struct PruneCall {
  const Params& params;
  const std::vector<bool>& wanted;  // which results are read
  PruneMemo& memo;                  // to be handed to prune_jaxpr
  std::shared_ptr<const Params> pruned;
  std::vector<bool> kept_in, kept_out;  // which operands and results stay
};

}  // namespace shmap
