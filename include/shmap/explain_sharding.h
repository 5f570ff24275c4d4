// explain_sharding: how a program of global arrays is split over a mesh, and why, as text.
#pragma once
#include <string>

#include "shmap/jaxpr.h"

namespace shmap {

// A text for people: each argument, equation and result of the program with its spec. The lines
// below a spec say what decided the spec (an argument's placement, an operand's dim, a constraint,
// the spec of a mapped function) and what is moved: which collective over which mesh axes, how many
// bytes each device hands to the collective, and why. Programs inside of equations (loops,
// branches, calls) are explained in their places. The program is first simplified as jit simplifies
// it, and variables have the names under which the simplified program prints.
//
// The program is split over the mesh on which the arguments of make_jaxpr were placed, or over the
// mesh that the program names (by a jit over a mesh, a shard_map, a constraint). The mesh may be
// abstract. Arguments of which only the types are known get the shardings that the program's
// operations ask for. Programs without a mesh, and programs over several meshes, are not split, and
// the text says so.
std::string explain_sharding(const ClosedJaxpr& jaxpr);

}  // namespace shmap
