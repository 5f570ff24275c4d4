#include "core/simulate/prepared_programs.h"

#include "core/compiler/fusion/fuse.h"
#include "core/compiler/passes/inline_calls.h"
#include "core/compiler/passes/schedule.h"
#include "core/compiler/passes/simplify.h"

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
