// Tracing a function to a jaxpr (autodidax's JaxprTrace and JaxprBuilder; JAX's DynamicJaxprTrace).
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/ir/jaxpr.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"

namespace shmap {

class JaxprTrace;

struct StagingOptions {
  // The trace that runs an operation whose operands are all constants. Null: such an operation is
  // staged too.
  Trace* below = nullptr;
  // A trace whose values this program may use as its own values. The linear program of a mapped
  // body captures variables of the linear program around the body in this way.
  const JaxprTrace* outer = nullptr;
  // Whether closed-over concrete scalars become literals, for which the host reads their values.
  bool inline_scalars = true;
  bool check_variance = true;  // as in ShardMapOptions
  bool auto_pbroadcast = true;
};

// The options of the current trace, for a program that becomes part of it.
StagingOptions inherited_options();

// A traced program, and the values from outside that it uses (its constants), which are its first
// binders.
struct Traced {
  JaxprRef jaxpr;
  std::vector<Array> consts;
};

// Stages every operation that is bound while it is the current trace. A value from outside (a
// concrete array, or a value of a trace below this one) becomes a constant of the program, the same
// constant at each use. Operands of different variance are cast by pbroadcast, once per value.
class JaxprTrace final : public Trace {
 public:
  // env: the mesh axes in scope; null outside of every shard_map. name, made: as in Trace.
  JaxprTrace(const char* name, const detail::AxisEnv* env, StagingOptions options = {},
             SourceLine made = {});
  // For a program that is made from `like`: with its axes, and its check of variance.
  JaxprTrace(const char* name, const Jaxpr& like);

  // A new argument of the program.
  Array argument(const ShapedArray& type);
  // The program of the operations so far, with the arguments so far and these results. It is
  // type-checked, and constants that are scalars become literals in it. Tracers of the program stay
  // alive, but must not be used any more.
  Traced build(std::span<Array> results, const char* what, SourceLine source);
  // A program made of some of this program's equations.
  Ref<Jaxpr> part(std::vector<VarRef> binders, std::vector<Eqn> eqns, std::vector<Atom> outs) const;

  void process(const Primitive& primitive, std::span<Array> in, const Params& params,
               std::span<Array> out, SourceLine source) override;
  Array vary(const Array& x, const AxisSet& axes, SourceLine source) override;
  const detail::AxisEnv* axis_env() const override { return env_; }
  bool staged() const override { return true; }
  bool auto_pbroadcast() const override { return options_.auto_pbroadcast; }
  bool checks_variance() const override { return options_.check_variance; }
  bool reads(std::uint64_t trace) const override {
    return options_.outer && (options_.outer->id() == trace || options_.outer->reads(trace));
  }

  // A function that process calls for an operation some of whose operands are values of this
  // program (is_staged). It may set the results, and then returns true; otherwise the operation
  // becomes an equation. Null: there is no such function. Returns the one before.
  using PartialEvalHook = bool (*)(JaxprTrace& trace, const Primitive& primitive,
                                   std::span<Array> in, const Params& params, std::span<Array> out,
                                   SourceLine source);
  PartialEvalHook set_partial_eval_hook(PartialEvalHook hook) {
    return std::exchange(partial_eval_hook_, hook);
  }

  // The equations staged so far. Valid until another equation is staged.
  std::span<const Eqn> equations() const { return eqns_; }
  // StagingOptions::below.
  Trace* below() const { return options_.below; }
  // Whether x is a value of this program or of an outer program (StagingOptions::outer).
  bool is_staged(const Array& x) const {
    return is_mine(x) || (options_.outer && options_.outer->is_staged(x));
  }
  // The variable or literal of this program for a value. TypeError where the value belongs to a
  // trace that is not active.
  Atom atom(const Array& x, const char* what, SourceLine source);
  // A variable of this program as a value of this trace.
  Array value(const VarRef& var) { return tracer(var); }
  // atom(), as a value of this trace.
  Array lift(const Array& x, const char* what, SourceLine source);

 private:
  Array tracer(const VarRef& var);
  void unify_variance(const Primitive& primitive, std::span<Array> in, SourceLine source);
  bool is_mine(const Array& x) const { return node_of(x)->trace == id(); }

  const detail::AxisEnv* env_;
  StagingOptions options_;
  PartialEvalHook partial_eval_hook_ = nullptr;
  std::vector<VarRef> arguments_;
  std::vector<Eqn> eqns_;
  struct Constant {
    Array value;  // kept alive, so that its address stays unique
    VarRef var;
  };
  std::vector<Constant> constants_;
  std::unordered_map<const detail::NodeBase*, std::size_t> constant_of_;
  struct Cast {
    AxisSet axes;
    Array value;
  };
  VarMap<std::vector<Cast>> casts_;  // by variable: the casts made so far
};

// The mesh axes in scope for a program traced here for arguments of these types: the axes of the
// current trace, otherwise the axes that the types name, with unknown sizes.
const detail::AxisEnv* env_for(std::span<const ShapedArray> types);

// Evaluates the program equation by equation under the current trace. `args` are consumed; each
// value is released after its last use.
std::vector<Array> eval_jaxpr(const Jaxpr& jaxpr, std::vector<Array> args);

}  // namespace shmap
