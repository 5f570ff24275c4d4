// Forward-mode differentiation (jax.jvp): values carry their tangents along.
#pragma once
#include <utility>
#include <vector>

#include "core/compiler/find_attention/traced_attention.h"
#include "core/ops/rules.h"
#include "core/tracing/make_jaxpr.h"
#include "shmap/flat_call.h"

namespace shmap {

// Interprets operations on dual values by their JVP rules. Primals are values of `parent`. Tangents
// are values of `parent` too where `linear` is null, otherwise variables of the linear program
// `linear`.
//
// Attention that is written as products and a softmax is differentiated as one operation where the
// parent traces a program (find_attention/traced_attention.h).
class JvpTrace final : public Trace {
 public:
  // tag: the number of the trace around a mapped body; the body may then capture values of that
  // trace, as values of this one. 0: there is no such trace.
  // name, made: as in Trace; a null name marks a trace for the library's own use.
  JvpTrace(Trace& parent, JaxprTrace* linear, std::uint64_t tag = 0, const char* name = nullptr,
           SourceLine made = {});

  void process(const Primitive& primitive, std::span<Array> in, const Params& params,
               std::span<Array> out, SourceLine source) override;
  Array vary(const Array& x, const AxisSet& axes, SourceLine source) override;
  const detail::AxisEnv* axis_env() const override { return parent_.axis_env(); }
  bool staged() const override { return parent_.staged(); }
  bool auto_pbroadcast() const override { return parent_.auto_pbroadcast(); }
  bool checks_variance() const override { return parent_.checks_variance(); }
  bool transforms() const override { return true; }

  // A value of this trace. The primal itself where the tangent is empty, or where there is a linear
  // program and the tangent is not a variable of it. The tangent is cast to vary as the primal
  // does. Error (a fault of the library) where their types differ otherwise.
  Array dual(Array primal, Array tangent, const char* what, SourceLine source);
  // The primal and the tangent of a value; an empty tangent is zero.
  std::pair<Array, Array> split(const Array& x) const;

  // Where a call with these operands is differentiated: its primal part under `parent`, its tangent
  // part in `linear`, or both under `parent` where `linear` is null. A jvp whose tangents are
  // variables of a linear program and whose primals are not, as in a rule of custom_jvp under grad,
  // goes apart like this trace's own linear program: of a call with a program inside, the primal
  // results would otherwise become values of the linear program.
  struct Place {
    JaxprTrace* linear;
    Trace& parent;
  };
  Place place(std::span<const Array> primals, std::span<const Array> tangents) const;

  Trace& parent() const { return parent_; }
  std::uint64_t tag() const { return tag_; }

 private:
  Trace& below() const { return linear_ ? static_cast<Trace&>(*linear_) : parent_; }

  Trace& parent_;
  JaxprTrace* linear_;
  JaxprTrace* linear_parent_;  // the parent, if that is the trace of a linear program
  std::uint64_t tag_;
  TracedAttention attention_;
};

struct Duals {
  std::vector<Array> primals, tangents;
};
// f and its derivative at `primals` along `tangents` (empty: zero). `result` receives the structure
// of what f returns; its leaves are moved out. Tangents of results that do not depend on the
// tangents of the inputs are empty.
Duals jvp_of(detail::BodyRef f, std::vector<Array> primals, std::span<const Array> tangents,
             detail::FlatTree& result, SourceLine source);

// The program with tangents: (primals, tangents of the active operands) -> (results, tangents of
// the active results). Closed-over values come first, as `consts`.
struct JvpProgram {
  JaxprRef jaxpr;
  std::vector<Array> consts;
  std::vector<bool> active_out;
};
// `wanted`: results that get a tangent even if it is zero, as carries of loops need it. Empty: no
// such results.
JvpProgram jvp_program(const Jaxpr& jaxpr, const std::vector<bool>& active,
                       const std::vector<bool>& wanted = {});

}  // namespace shmap
