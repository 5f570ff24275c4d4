#include "core/simulate/program_memory.h"

#include <algorithm>

#include "core/compiler/passes/lifetimes.h"
#include "core/ir/nesting.h"
#include "core/simulate/prepared_programs.h"

namespace shmap {

namespace {

// The peak of memory without the arguments.
std::int64_t peak_beside_arguments(const Jaxpr& program, PreparedPrograms& programs) {
  const PassVisit visit("simulate", program);
  const ProgramIndex index(program);
  const Lifetimes lifetimes(index, kHostKind, [](const Var* v) { return v->type.nbytes(); });
  std::int64_t peak = 0;
  for (std::int64_t need : lifetimes.needs([&](const Eqn& e) {
         std::int64_t inside = 0;
         for (const Jaxpr* inner : inner_jaxprs(*e.params))
           if (e.primitive->interpret)
             inside = std::max(inside, peak_beside_arguments(programs.of(*inner), programs));
         return inside;
       }))
    peak = std::max(peak, need);
  return peak;
}

}  // namespace

std::int64_t peak_bytes(const Jaxpr& program, PreparedPrograms& programs) {
  std::int64_t arguments = 0;
  for (const VarRef& v : program.binders) arguments += v->type.nbytes();
  return arguments + peak_beside_arguments(program, programs);
}

}  // namespace shmap
