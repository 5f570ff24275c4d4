// A ClosedJaxpr as a program of blocks, for functions that examine a program without running it:
// cost_analysis, explain_sharding, simulate.
#pragma once
#include <optional>
#include <vector>

#include "core/compiler/lowering/lower.h"

namespace shmap {

// The first mesh that a program's shard_maps and constraints name, nested programs included; null
// where they name none.
const detail::MeshImpl* mesh_of(const Jaxpr& jaxpr);

// The mesh of the program's arguments; otherwise the mesh that its jits over meshes, its shard_maps
// and constraints name, which may be abstract. Null where there is no mesh, or several.
const detail::MeshImpl* mesh_of_program(const detail::ClosedJaxprImpl& program);

// Whether the program has a constraint or a jit over a mesh outside of its shard_maps' bodies.
bool asks_to_be_split(const Jaxpr& jaxpr);
// Whether the equation is a jit over a mesh; whether the program contains one.
bool is_jit_over_mesh(const Eqn& e);
bool has_jit_over_mesh(const Jaxpr& jaxpr);

struct ProgramOfBlocks {
  JaxprRef global;  // the program, simplified as jit simplifies it before lowering
  Lowered lowered;
};
// Arguments without a known sharding get the one that argument_shardings chooses if `chooses`,
// otherwise a copy on each device. Nothing where parts of the program work on other meshes.
std::optional<ProgramOfBlocks> program_of_blocks(const detail::ClosedJaxprImpl& program,
                                                 const detail::MeshImpl* mesh, bool chooses,
                                                 LowerLog* log = nullptr);

}  // namespace shmap
