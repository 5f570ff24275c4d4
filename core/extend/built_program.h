// A program that is made equation by equation, each checked when it is added: what JaxprBuilder and
// parse_jaxpr work with.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/extend/param_reader.h"
#include "core/ir/jaxpr.h"
#include "core/ir/trace.h"

namespace shmap {
namespace detail {

class BuiltProgram {
 public:
  // env: the mesh axes in scope; null outside of every shard_map.
  BuiltProgram(const AxisEnv* env, bool checks_variance)
      : env_(env), checks_variance_(checks_variance) {}

  VarRef input(const ShapedArray& type);
  VarRef constant(const Array& value, SourceLine source);
  VarRef unbound(const ShapedArray& type);

  // The types that an equation gives. Throws what read_params and the primitive's rules do, and
  // TypeErrors of operands that are unbound, of another program, or vary unlike.
  struct Checked {
    const Primitive* primitive;
    std::vector<Atom> in;
    std::shared_ptr<const Params> params;
    std::vector<ShapedArray> types;
  };
  Checked check(const Primitive& primitive, std::vector<Atom> in, const extend::Params& params,
                ReadScope& scope) const;
  std::vector<VarRef> add(Checked eqn, SourceLine source);
  // With variables that were made by unbound(). TypeErrors: bound already, of another program, of
  // another type.
  void add_into(Checked eqn, std::span<const VarRef> out, SourceLine source);

  JaxprRef build(std::span<const Atom> results, SourceLine source);
  const std::vector<Array>& consts() const { return consts_; }
  const AxisEnv* env() const { return env_; }

 private:
  enum class State : std::uint8_t { unbound, bound };
  void require_bound(const Atom& a, const std::string& where) const;
  ShapedArray own(const ShapedArray& type) const;  // with its axes in env_

  const AxisEnv* env_;
  bool checks_variance_;
  std::vector<VarRef> inputs_, constvars_;
  std::vector<Array> consts_;
  std::vector<shmap::Eqn> eqns_;
  VarMap<State> states_;
  std::vector<VarRef> kept_;  // variables that nothing binds yet: their addresses stay theirs
};

}  // namespace detail
}  // namespace shmap
