// How the equations of a program hang together.
#pragma once
#include <unordered_set>
#include <vector>

#include "core/ir/jaxpr.h"

namespace shmap {

// Of a program that outlives it.
class EqnUses {
 public:
  explicit EqnUses(const Jaxpr& jaxpr);

  const Eqn& eqn(int i) const { return eqns_[static_cast<std::size_t>(i)]; }
  // The equations that read it, each as often as it does; none of a result of the program.
  const std::vector<int>& users(const Var* v) const {
    static const std::vector<int> kNone;
    const auto it = users_.find(v);
    return it == users_.end() || outs_.count(v) ? kNone : it->second;
  }
  // The only one, or -1.
  int user(const Var* v) const { return users(v).size() == 1 ? users(v)[0] : -1; }
  // What makes it; null for arguments and literals.
  const Eqn* maker(const Atom& a) const {
    if (a.is_literal()) return nullptr;
    const auto it = maker_.find(a.var());
    return it == maker_.end() ? nullptr : &eqn(it->second);
  }
  // How many collectives, one after another, it has come through.
  int depth_of(const Atom& a) const {
    const auto it = a.is_literal() ? depth_.end() : depth_.find(a.var());
    return it == depth_.end() ? 0 : it->second;
  }

 private:
  const std::vector<Eqn>& eqns_;
  VarMap<std::vector<int>> users_;
  VarMap<int> maker_, depth_;
  std::unordered_set<const Var*> outs_;
};

}  // namespace shmap
