// Finds processes that make a mesh otherwise than the others, at its first collective: each reports
// its meshes to their first process (Exchanges::report_mesh), and nobody waits for a report.
//
// Compared are meshes of the same devices in different order, with other axis sizes or names, on
// which the main threads of two processes begin collectives before either has made the other's mesh
// (core/processes/mesh_reports.h says what is no fault). Not compared are meshes on which other
// threads than the main thread begin, meshes of other devices, and those without collectives
// between processes.
#pragma once
#include "core/array/mesh_impl.h"
#include "shmap/error.h"

namespace shmap {

// A program makes or asks for this mesh. Reports the first time alone, and nothing for a mesh whose
// devices are all this process's or all of others. Any thread.
void report_made(const detail::MeshImpl& mesh, SourceLine source);

// This thread takes the mesh's first number of a collective between processes.
void report_begun(const detail::MeshImpl& mesh);

}  // namespace shmap
