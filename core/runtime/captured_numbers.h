// The numbers of collectives that leave the process, while this thread captures a graph. In a
// capture the numbers count from 0; each launch of the graph takes as many new numbers of the mesh
// (MeshImpl::take_numbers) and adds the first of them (Graph::launch's ticket). A replay therefore
// uses the numbers that the same steps would use without a graph.
#pragma once
#include <cstdint>

#include "core/array/mesh_impl.h"

namespace shmap {

// The mask of mesh axes over which devices take different ways now, on this thread
// (core/ir/divergence.h). Processes may then take different ways too, and count their collectives
// separately: processes that can meet in a collective agree in the coordinates on these axes, and
// so in the ways that they take.
std::uint32_t divergent_axes(const detail::MeshImpl& mesh);
// MeshImpl::name and MeshImpl::take_numbers, for the processes that count together under this
// divergence; `divergent` = 0 gives the mesh's own.
std::uint64_t number_space(const detail::MeshImpl& mesh, std::uint32_t divergent);
std::uint64_t take_numbers(const detail::MeshImpl& mesh, std::uint32_t divergent,
                           std::uint64_t count);
// MeshImpl::give_numbers_back.
void give_numbers_back(const detail::MeshImpl& mesh, std::uint32_t divergent, std::uint64_t first);

inline std::uint64_t& captured_numbers() noexcept {
  static thread_local std::uint64_t count = 0;
  return count;
}

}  // namespace shmap
