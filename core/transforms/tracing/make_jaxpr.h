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
  // Null: every op is staged, also one on constants alone. Otherwise those run at once, in this
  // trace.
  Trace* below = nullptr;
  // Values of this trace are values of the program too: the linear program around that of a mapped
  // body, whose variables the body closes over.
  const JaxprTrace* outer = nullptr;
  // Captured concrete scalars become literals, for which the host reads them.
  bool inline_scalars = true;
  bool check_variance = true;  // as ShardMapOptions has them
  bool auto_pbroadcast = true;
};

// A program that was traced, and the values from outside that it reads, which are its first
// binders.
struct Traced {
  JaxprRef jaxpr;
  std::vector<Array> consts;
};

// Stages every op that is bound while it is current. A value from outside (concrete, or of a trace
// that works below this one) becomes a constant: one, however often it is used. Operands of unlike
// variance are cast by pbroadcast, once for each value.
class JaxprTrace final : public Trace {
 public:
  // env: the mesh axes in scope; null outside of every shard_map.
  // made: as of a Trace.
  JaxprTrace(const char* name, const detail::AxisEnv* env, StagingOptions options = {},
             SourceLine made = {});

  // A new argument of the program.
  Array argument(const ShapedArray& type);
  // The program of the arguments so far with these results: checked, and with scalar constants as
  // literals. Variables of the program go on living with their tracers, but may be used no more.
  Traced build(std::span<Array> results, const char* what, SourceLine source);

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

  // StagingOptions::below.
  Trace* below() const { return options_.below; }
  // Whether it is a value of this program, or of one around it (StagingOptions::outer).
  bool is_staged(const Array& x) const {
    return is_mine(x) || (options_.outer && options_.outer->is_staged(x));
  }
  // The variable or literal that stands for a value here. TypeError where it belongs to a trace
  // that is not active.
  Atom atom(const Array& x, const char* what, SourceLine source);
  // A value of this trace for it.
  Array lift(const Array& x, const char* what, SourceLine source);

 private:
  Array tracer(const VarRef& var);
  void unify_variance(const Primitive& primitive, std::span<Array> in, SourceLine source);
  bool is_mine(const Array& x) const { return node_of(x)->trace == id(); }

  const detail::AxisEnv* env_;
  StagingOptions options_;
  std::vector<VarRef> arguments_;
  std::vector<Eqn> eqns_;
  struct Constant {
    Array value;  // kept alive, so that its address stays its own
    VarRef var;
  };
  std::vector<Constant> constants_;
  std::unordered_map<const detail::NodeBase*, std::size_t> constant_of_;
  struct Cast {
    AxisSet axes;
    Array value;
  };
  VarMap<std::vector<Cast>> casts_;  // of each variable, those that were made
};

// The axes in scope for a program that is traced here for arguments of these types: the current
// trace's, or else those that the types name (of unknown size).
const detail::AxisEnv* env_for(std::span<const ShapedArray> types);

// Evaluates equation by equation under the current trace. `args` are consumed; a value is let go
// after its last use.
std::vector<Array> eval_jaxpr(const Jaxpr& jaxpr, std::vector<Array> args);

}  // namespace shmap
