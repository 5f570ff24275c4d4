// A program as data (a ClosedJaxpr) as what each device does, for those who look at it and do not
// run it: cost_analysis, explain_sharding, simulate.
#pragma once
#include <optional>
#include <vector>

#include "core/transforms/lowering/lower.h"

namespace shmap {

// The mesh on which the program's arguments lie, or else the one that it asks for by its jits over
// meshes, its shard_maps and constraints; it may be abstract. Null where there is none, and where
// there are several.
const detail::MeshImpl* mesh_of_program(const detail::ClosedJaxprImpl& program);

// Whether the program itself asks to be split, by a constraint or a jit over a mesh, and not only
// the bodies of its shard_maps.
bool asks_to_be_split(const Jaxpr& jaxpr);
// Whether it holds a jit over a mesh.
bool has_jit_over_mesh(const Jaxpr& jaxpr);

struct ProgramOfBlocks {
  JaxprRef global;  // the program, simplified as jit does it first
  Lowered lowered;
};
// Arguments whose sharding is not known lie as argument_shardings chooses where `chooses`, else
// each device has a copy of them. Nothing where parts of the program work on other meshes.
std::optional<ProgramOfBlocks> program_of_blocks(const detail::ClosedJaxprImpl& program,
                                                 const detail::MeshImpl* mesh, bool chooses,
                                                 LowerLog* log = nullptr);

}  // namespace shmap
