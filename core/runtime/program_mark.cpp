#include "core/runtime/program_mark.h"

#include <string>
#include <utility>

#include "core/base/hash_text.h"

namespace shmap {
namespace {

thread_local ProgramMark current;

}  // namespace

ProgramMark make_program_mark(const detail::MeshImpl& mesh, const Jaxpr& jaxpr) {
  ProgramMark mark;
  if (mesh.fully_addressable()) return mark;
  mark.program = HashText().add(to_string(jaxpr)).value();
  mark.equations = static_cast<std::uint32_t>(jaxpr.eqns.size());
  return mark;
}

ProgramMark current_program() noexcept { return current; }

ProgramScope::ProgramScope(const ProgramMark& mark) noexcept
    : outer_(std::exchange(current, mark)) {}
ProgramScope::~ProgramScope() { current = outer_; }

}  // namespace shmap
