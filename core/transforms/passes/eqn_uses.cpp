#include "core/transforms/passes/eqn_uses.h"

#include <algorithm>

namespace shmap {

EqnUses::EqnUses(const Jaxpr& jaxpr) : eqns_(jaxpr.eqns) {
  for (int i = 0; i < static_cast<int>(eqns_.size()); ++i) {
    const Eqn& e = eqn(i);
    int depth = 0;
    for (const Atom& a : e.in) {
      if (a.is_literal()) continue;
      users_[a.var()].push_back(i);
      depth = std::max(depth, depth_of(a));
    }
    if (e.primitive->moves_data || e.primitive->interpret) ++depth;
    for (const VarRef& v : e.out) {
      maker_[v.get()] = i;
      depth_[v.get()] = depth;
    }
  }
  for (const Atom& a : jaxpr.outs)
    if (!a.is_literal()) outs_.insert(a.var());
}

}  // namespace shmap
