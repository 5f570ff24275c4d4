// A variable of a jaxpr.
#pragma once
#include "core/base/intrusive.h"
#include "shmap/shaped_array.h"

namespace shmap {

// Its identity is its address: two of one type are two variables.
struct Var : RefCounted {
  explicit Var(const ShapedArray& t) : type(t) {}
  const ShapedArray type;
};
using VarRef = Ref<const Var>;

}  // namespace shmap
