#include "core/compiler/lowering/closed_program.h"

#include "core/compiler/lowering/argument_shardings.h"
#include "core/compiler/lowering/sharding_constraint.h"
#include "core/compiler/passes/simplify.h"
#include "core/ir/nesting.h"

namespace shmap {

namespace {

template <class Is>
bool has_eqn(const Jaxpr& jaxpr, const Is& is) {
  for (const Eqn& e : jaxpr.eqns) {
    if (is(e)) return true;
    for (const Jaxpr* inner : inner_jaxprs(*e.params))
      if (has_eqn(*inner, is)) return true;
  }
  return false;
}

}  // namespace

const detail::MeshImpl* mesh_of(const Jaxpr& jaxpr) {
  const PassVisit visit("finding the mesh", jaxpr);
  for (const Eqn& e : jaxpr.eqns) {
    if (const detail::MeshImpl* mesh = e.params->mesh()) return mesh;
    if (!e.primitive->interpret) continue;
    for (const Jaxpr* inner : inner_jaxprs(*e.params))
      if (const detail::MeshImpl* mesh = mesh_of(*inner)) return mesh;
  }
  return nullptr;
}

// jit is the only primitive that both calls a program and has a mesh.
bool is_jit_over_mesh(const Eqn& e) { return e.primitive->programs.inlined && e.params->mesh(); }

const detail::MeshImpl* mesh_of_program(const detail::ClosedJaxprImpl& program) {
  const detail::MeshImpl* mesh = nullptr;
  for (const Sharding* s : program.in_shardings) {
    if (!s) continue;
    if (mesh && mesh != s->mesh()) return nullptr;
    mesh = s->mesh();
  }
  const detail::MeshImpl* asked = mesh_of(*program.jaxpr);
  if (!mesh) return asked;
  return asked && asked != mesh ? nullptr : mesh;
}

bool has_jit_over_mesh(const Jaxpr& jaxpr) { return has_eqn(jaxpr, is_jit_over_mesh); }

bool asks_to_be_split(const Jaxpr& jaxpr) {
  return has_eqn(jaxpr, [](const Eqn& e) {
    return is_sharding_constraint(*e.primitive) || is_jit_over_mesh(e);
  });
}

std::optional<ProgramOfBlocks> program_of_blocks(const detail::ClosedJaxprImpl& program,
                                                 const detail::MeshImpl* mesh, bool chooses,
                                                 LowerLog* log) {
  const std::size_t consts = program.consts.size();
  std::vector<const Sharding*> shardings(program.jaxpr->binders.size() - consts,
                                         chooses ? nullptr : mesh->replicated());
  for (std::size_t i = 0; i < program.in_shardings.size(); ++i)
    if (program.in_shardings[i]) shardings[i] = program.in_shardings[i];
  try {
    ProgramOfBlocks made{simplify_global(*program.jaxpr), {}};
    if (chooses) shardings = argument_shardings(*made.global, consts, mesh, shardings);
    made.lowered = lower(*made.global, program.consts, mesh, shardings, log);
    return made;
  } catch (const OtherMesh&) {  // such a program runs operation by operation, as it is written
    return std::nullopt;
  }
}

}  // namespace shmap
