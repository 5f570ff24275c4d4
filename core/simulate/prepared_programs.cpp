#include "core/simulate/prepared_programs.h"

#include "core/transforms/fusion/fuse.h"
#include "core/transforms/passes/inline_calls.h"
#include "core/transforms/passes/schedule.h"
#include "core/transforms/passes/simplify.h"

namespace shmap {

const Jaxpr& PreparedPrograms::of(const Jaxpr& program) {
  const auto known = programs_.find(&program);
  if (known != programs_.end()) return *known->second.made;
  const JaxprRef fused = fuse(*simplify(*inline_calls(program)));
  Prepared made{JaxprRef(&program), schedule(*fused, rates_)};
  return *programs_.emplace(&program, std::move(made)).first->second.made;
}

}  // namespace shmap
