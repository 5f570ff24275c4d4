// A variable of a jaxpr.
#pragma once
#include "core/base/intrusive.h"
#include "shmap/shaped_array.h"

namespace shmap {

// A variable's identity is its address: two variables of one type are different variables.
struct Var : RefCounted {
  explicit Var(const ShapedArray& t) : type(t) {}
  const ShapedArray type;
};
using VarRef = Ref<const Var>;

}  // namespace shmap
