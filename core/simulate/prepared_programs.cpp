#include "core/simulate/prepared_programs.h"

#include "core/transforms/fusion/fuse.h"
#include "core/transforms/passes/inline_calls.h"
#include "core/transforms/passes/schedule.h"
#include "core/transforms/passes/simplify.h"

namespace shmap {

const Jaxpr& PreparedPrograms::of(const Jaxpr& program) { return *prepare(program).made; }

PreparedPrograms::Prepared& PreparedPrograms::prepare(const Jaxpr& program) {
  const auto known = programs_.find(&program);
  if (known != programs_.end()) return known->second;
  const JaxprRef fused = fuse(*simplify(*inline_calls(program)));
  Prepared made{JaxprRef(&program), schedule(*fused, rates_), std::nullopt};
  return programs_.emplace(&program, std::move(made)).first->second;
}

}  // namespace shmap
