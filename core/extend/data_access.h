// Conversions between the public handles of programs and the library's own objects.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "core/ir/jaxpr.h"
#include "shmap/extend/core.h"

namespace shmap {
namespace detail {

struct EqnHandle {
  JaxprRef owner;  // keeps the equation alive
  const shmap::Eqn* eqn;
  extend::Params params;
};

struct DataAccess {
  static extend::Var var(const VarRef& var);
  static VarRef ref(const extend::Var& var);
  static extend::Atom atom(const shmap::Atom& atom);
  static shmap::Atom ref(const extend::Atom& atom);
  static extend::Eqn eqn(const JaxprRef& owner, const shmap::Eqn& eqn);
  static const EqnHandle& handle(const extend::Eqn& eqn) { return *eqn.eqn_; }
  static extend::AnyPrimitive primitive(const shmap::Primitive& primitive);
  static const shmap::Primitive& ref(const extend::AnyPrimitive& primitive);
};

}  // namespace detail

// Returns the primitive of that name. ValueError, which suggests a similar name, if there is none.
const Primitive& primitive_of_name(std::string_view name, SourceLine source);

}  // namespace shmap
