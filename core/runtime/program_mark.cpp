#include "core/runtime/program_mark.h"

#include <string>
#include <string_view>
#include <utility>

#include "core/base/hash_text.h"
#include "core/device/backend.h"
#include "core/ir/node.h"
#include "core/ir/trace.h"

namespace shmap {
namespace {

constexpr std::int64_t kMostBytes = 64 << 10;

thread_local ProgramMark current;

}  // namespace

ProgramMark make_program_mark(const detail::MeshImpl& mesh, const Jaxpr& jaxpr,
                              std::span<const Array> consts) {
  ProgramMark mark;
  if (mesh.fully_addressable()) return mark;
  mark.program = HashText().add(to_string(jaxpr)).value();
  mark.equations = static_cast<std::uint32_t>(jaxpr.eqns.size());
  if (!mesh.backend().host_addressable() || capturing()) return mark;
  HashText values;
  for (std::size_t i = 0; i < consts.size() && i < jaxpr.binders.size(); ++i) {
    const ShapedArray& type = jaxpr.binders[i]->type;
    const std::int64_t bytes = type.nbytes();
    const StoredNode* stored = stored_of(consts[i]);
    if (stored == nullptr || bytes > kMostBytes || type.axes().mask_in(*mesh.env()) != 0) continue;
    const Block& block = stored->blocks().front();
    block.buffer->def().wait();
    values.add(
        std::string_view(static_cast<const char*>(block.data()), static_cast<std::size_t>(bytes)));
  }
  mark.constants = values.value();
  return mark;
}

ProgramMark current_program() noexcept { return current; }

ProgramScope::ProgramScope(const ProgramMark& mark) noexcept
    : outer_(std::exchange(current, mark)) {}
ProgramScope::~ProgramScope() { current = outer_; }

}  // namespace shmap
