// Rematerialisation reduces the peak of a program's memory: equations whose results are read only
// after the peak move behind it, and cheap values are computed again instead of being kept.
#pragma once
#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"
#include "core/runtime/rates.h"

namespace shmap {

// Returns a program with the same results, to the last bit. The equations of `jaxpr` are in the
// order in which they will run. The pass looks at the equation that needs the most memory, and at
// the values that are alive there and are read only later:
//
//   later: an equation whose results are not read before the peak moves behind the peak, to the
//       first reader of its results;
//   again: an elementwise value (of one operation, or of a `fused` equation) that is also read
//       before the peak is dropped there, and computed again just before its next reader, or inside
//       of that reader where both can be one `fused` equation.
//
// The pass makes the change that frees the most memory for the least work, and looks again.
// Operands that a change keeps alive for longer count against it. Collectives and equations with
// effects or with programs inside stay where they are, and random bits are not computed again.
//
// Changes are kept if the peak falls noticeably, and if the program takes hardly longer by the
// estimated rates, overlap with collectives included. The peak never rises, by the model of
// core/compiler/passes/lifetimes.h. The time is linear in the number of equations, for each of a
// limited number of changes.
//
// mesh: null for a device with a memory of its own; otherwise bytes are those of all local devices,
// some of which share blocks. The result depends only on the program, the mesh and the rates, so
// that it is the same in every process.
JaxprRef rematerialize(const Jaxpr& jaxpr, const detail::MeshImpl* mesh, DeviceKind kind,
                       const Rates& rates);

}  // namespace shmap
