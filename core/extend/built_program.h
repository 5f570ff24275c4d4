// A program that is built equation by equation, each of which is checked when it is added.
// JaxprBuilder and parse_jaxpr use it.
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

  // New variables: an argument, a closed-over value, and one that an equation will bind (add_into).
  VarRef input(const ShapedArray& type);
  VarRef constant(const Array& value, SourceLine source);
  VarRef unbound(const ShapedArray& type);

  // The result types of an equation. Throws the errors of read_params and of the primitive's
  // rules; TypeErrors: an operand is unbound, belongs to another program, or varies over other
  // axes.
  struct Checked {
    const Primitive* primitive;
    std::vector<Atom> in;
    std::shared_ptr<const Params> params;
    std::vector<ShapedArray> types;
  };
  Checked check(const Primitive& primitive, std::vector<Atom> in, const extend::Params& params,
                ReadScope& scope) const;
  std::vector<VarRef> add(Checked eqn, SourceLine source);
  // Adds an equation whose results are variables made by unbound(). TypeErrors: a variable is bound
  // already, belongs to another program, or has another type.
  void add_into(Checked eqn, std::span<const VarRef> out, SourceLine source);

  JaxprRef build(std::span<const Atom> results, SourceLine source);
  const std::vector<Array>& consts() const { return consts_; }
  const AxisEnv* env() const { return env_; }

 private:
  enum class State : std::uint8_t { unbound, bound };
  void require_bound(const Atom& a, const std::string& where) const;
  ShapedArray own(const ShapedArray& type) const;  // the type with its axes as axes of env_

  const AxisEnv* env_;
  bool checks_variance_;
  std::vector<VarRef> inputs_, constvars_;
  std::vector<Array> consts_;
  std::vector<shmap::Eqn> eqns_;
  VarMap<State> states_;
  // variables that may still be unbound, kept alive so that no other variable gets their addresses
  std::vector<VarRef> kept_;
};

}  // namespace detail
}  // namespace shmap
