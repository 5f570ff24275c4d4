#include "core/simulate/prepared_programs.h"

#include "collectives/primitives.h"
#include "core/transforms/fusion/fuse.h"
#include "core/transforms/passes/inline_calls.h"
#include "core/transforms/passes/schedule.h"
#include "core/transforms/passes/simplify.h"

namespace shmap {

bool is_view(const Eqn& e) {
  if (e.in.empty() || e.in[0].is_literal() || e.primitive->moves_data()) return false;
  if (e.primitive == &pscatter_p) return params_as<ScatterParams>(*e.params).dimension == 0;
  return e.primitive->view && e.primitive->view(e.in[0].type(), *e.params, e.out[0]->type) >= 0;
}

const Jaxpr& PreparedPrograms::of(const Jaxpr& program) {
  const auto known = programs_.find(&program);
  if (known != programs_.end()) return *known->second.made;
  const JaxprRef fused = fuse(*simplify(*inline_calls(program)));
  Prepared made{JaxprRef(&program), schedule(*fused, rates_)};
  return *programs_.emplace(&program, std::move(made)).first->second.made;
}

}  // namespace shmap
