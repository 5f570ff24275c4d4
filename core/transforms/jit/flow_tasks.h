// Control flow of small steps as tasks: a device runs its loop by itself, where the host would have
// launched a plan a trip.
#pragma once
#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// A trip, or a branch, whose kernels take longer than this on one core is left to the host, which
// gives each kernel all cores.
inline constexpr double kFlowTaskNs = 40'000;

// How a program is planned: what a task's own programs are made of.
using OptimizeFn = JaxprRef (*)(const Jaxpr& jaxpr, const detail::MeshImpl* mesh);

// The program with its loops and branches that a device can run by itself as `flow_task`: their
// steps are kernels or views, without collectives that move data and without effects, and a trip
// is short. Itself where it has none, or devices of the mesh run no host code. The same values, to
// the last bit.
JaxprRef make_flow_tasks(const JaxprRef& jaxpr, const detail::MeshImpl* mesh, OptimizeFn optimize);

}  // namespace shmap
