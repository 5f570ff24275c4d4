// Compares by hash what has to be the same in all processes of a mesh, where it is first used: the
// programs under jit, the values that they capture, and host data that every device has whole.
//
// The hashes go to the mesh's first process as messages of their own, for which nobody waits
// (Exchanges::report_value), so that a program without collectives is compared too. Only the main
// thread's calls are reported: other threads may call in any order. Nothing is done on a mesh of
// one process, and nothing is reported in code that only some devices take.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/array/mesh_impl.h"
#include "core/ir/jaxpr.h"
#include "core/runtime/program_mark.h"

namespace shmap {

// Compares a program that is to be planned for the mesh, and `consts`, the values of its first
// binders, stored on the mesh. Waits for the values that are equal on all devices, and reads each
// once, at 10 GB/s or so from CPU memory. Returns the mark of the program, also on threads and in
// code where nothing is compared; of the values, those of up to 64 KB on CPU devices are in it.
ProgramMark compare_program(const detail::MeshImpl& mesh, const Jaxpr& jaxpr,
                            std::span<const Array> consts, SourceLine source);

// Compares arguments of a function under jit that is called for the first time: those that are host
// data and that every device of the mesh gets whole. in: the arguments' shardings; empty: all are
// replicated.
void compare_arguments(const detail::MeshImpl& mesh, std::span<const Array> arguments,
                       std::span<const Sharding* const> in, SourceLine source);
// The same for a value that enters the body of a shard_map: once for each name ("args[0] of
// shard_map") and line.
void compare_entering(const Array& x, const Sharding& target, const std::string& name,
                      SourceLine source);

// The same for host data that device_put replicates: at each call.
void compare_placed(const Array& x, const Sharding& target, SourceLine source);

}  // namespace shmap
