// types_of: the types of arrays, and of the operands or of the results of an equation.
#pragma once
#include <span>
#include <vector>

#include "core/ir/jaxpr.h"
#include "core/ir/node.h"

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
inline std::vector<ShapedArray> types_of(std::span<const Array> values) {
  std::vector<ShapedArray> types;
  types.reserve(values.size());
  for (const Array& x : values) types.push_back(node_of(x)->type);
  return types;
}

}  // namespace shmap
