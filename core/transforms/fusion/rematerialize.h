// Rematerialisation: where a program's memory is at its fullest, what is read only later is
// computed later, and values that are cheap to compute are computed again in place of being kept.
#pragma once
#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"
#include "core/runtime/rates.h"

namespace shmap {

// The same results, to the last bit, of a program whose equations are in the order in which they
// will run. Of the equation that needs the most memory, the pass looks at the values that are alive
// there and not read until later:
//
//   later  an equation whose results are not read before it moves behind it, to its first reader
//   again  an elementwise value (of one operation, or of a `fused` equation) that is read before it
//          too is dropped after that, and computed again just before its next reader, or inside of
//          it where both can be one `fused` equation
//
// It does to one of them what frees the most memory for the least work, and looks again. Operands
// that would have to be kept for it count. Collectives and equations with effects or with programs
// inside stay where they are, and random bits are not computed again.
//
// Changes are kept where the peak falls noticeably, and while by the rates the program takes hardly
// longer, what its collectives overlap with included. The peak never rises, by the model of
// core/transforms/passes/lifetimes.h. The time is linear in the number of equations, for each of a
// limited number of changes.
//
// mesh: null for a device with a memory of its own; otherwise bytes are those of all local devices,
// some of which share blocks. The result depends only on the program, the mesh and the rates, so
// that it is the same in every process.
JaxprRef rematerialize(const Jaxpr& jaxpr, const detail::MeshImpl* mesh, DeviceKind kind,
                       const Rates& rates);

}  // namespace shmap
