#include "core/ir/divergence.h"

#include "core/ir/collective_axes.h"
#include "core/ir/trace.h"

namespace shmap {

namespace {

thread_local const DivergentScope* innermost_divergence = nullptr;

void check(const Primitive& primitive, const Params& params, const char* what, const AxisSet& axes,
           SourceLine source) {
  if (!primitive.moves_data() || axes.empty()) return;
  const std::vector<std::string> names = collective_axes(params);
  for (const std::string& name : names) {
    if (const int axis = axes.env()->find(name);
        axis < 0 || !(axes.mask_in(*axes.env()) >> axis & 1u))
      continue;
    throw CollectiveError(
        std::string(primitive.name) + " over " + to_string(Axes(names)) + " inside a " + what +
        " whose condition varies over '" + name +
        "': some devices would call the collective, and others would not. Move the collective out "
        "of the " +
        what + ", or make the condition the same over '" + name +
        "' first (psum, pmax, all_gather_invariant)" + at_line(source));
  }
}

}  // namespace

DivergentScope::DivergentScope(const char* what, AxisSet axes, const std::vector<bool>& active)
    : what_(what), axes_(axes), active_(active), outer_(innermost_divergence) {
  innermost_divergence = this;
}
DivergentScope::~DivergentScope() { innermost_divergence = outer_; }

const DivergentScope* divergence() { return innermost_divergence; }

void check_divergent_collective(const Primitive& primitive, const Params& params,
                                SourceLine source) {
  for (const DivergentScope* s = innermost_divergence; s; s = s->outer())
    check(primitive, params, s->what(), s->axes(), source);
}

void check_divergent_program(const Jaxpr& jaxpr, const char* what, const AxisSet& axes) {
  if (axes.empty()) return;
  for (const Eqn& e : jaxpr.eqns) {
    check(*e.primitive, *e.params, what, axes, e.source);
    for (const Jaxpr* inner : inner_jaxprs(*e.params)) check_divergent_program(*inner, what, axes);
  }
}

}  // namespace shmap
