// types_of: the types of the operands or of the results of an equation.
#pragma once
#include <vector>

#include "core/ir/jaxpr.h"

namespace shmap {

inline std::vector<ShapedArray> types_of(const std::vector<Atom>& atoms) {
  std::vector<ShapedArray> types;
  types.reserve(atoms.size());
  for (const Atom& a : atoms) types.push_back(a.type());
  return types;
}
inline std::vector<ShapedArray> types_of(const std::vector<VarRef>& vars) {
  std::vector<ShapedArray> types;
  types.reserve(vars.size());
  for (const VarRef& v : vars) types.push_back(v->type);
  return types;
}

}  // namespace shmap
