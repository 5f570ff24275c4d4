// Staging of programs in bodies for operands that vary over more mesh axes than those which the
// programs were traced for.
#pragma once
#include <span>
#include <vector>

#include "core/ir/jaxpr.h"
#include "shmap/flat_call.h"

namespace shmap {

// An equation with programs (Primitive::interpret), some of whose operands `in` vary over more axes
// than the types in the equation. The rule Primitive::widen stages it under the current trace, and
// sets `out`.
struct WidenCall {
  const Eqn& eqn;
  std::span<Array> in;
  std::span<Array> out;
};

// Stages the equations of a program one by one under the current trace. Programs in equations are
// traced again where operands of theirs vary over more axes now.
std::vector<Array> stage_in_body(const Jaxpr& jaxpr, std::vector<Array> args);

// A program of a loop or branch as a function of leaves, staged by stage_in_body. `consts`: values
// of its first binders.
class StagedBody {
 public:
  explicit StagedBody(const Jaxpr& jaxpr, std::span<const Array> consts = {})
      : jaxpr_(jaxpr), consts_(consts) {}
  void operator()(std::vector<Array>& leaves, detail::FlatTree& result) const;

 private:
  const Jaxpr& jaxpr_;
  std::span<const Array> consts_;
};

}  // namespace shmap
