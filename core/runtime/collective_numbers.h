// The numbers of collectives that leave the process.
//
// Ways. Where devices take different ways (core/ir/divergence.h), those that agree in their
// coordinates on the axes of the divergence take the same one: these devices of all processes are
// called a way here. A process may have devices of several ways and run the branches of all, while
// another one has devices of one way alone. Collectives are over other axes than those of the
// divergence, so that the devices which meet in one are of one way. Each way therefore counts its
// collectives by itself, and a process takes part in those of the ways of its active devices.
//
// In a capture the numbers count from 0; each launch of the graph takes as many new numbers and
// adds the first of them (Graph::launch's ticket). A replay therefore uses the numbers that the
// same steps would use without a graph.
#pragma once
#include <cstdint>
#include <optional>

#include "core/array/mesh_impl.h"

namespace shmap {

// The mask of mesh axes over which devices take different ways now, on this thread.
std::uint32_t divergent_axes(const detail::MeshImpl& mesh);
// The name of a local device's way under a divergence over these axes: a hash, the same in all
// processes; 0 where the mask is 0.
std::uint64_t way_of(const detail::MeshImpl& mesh, std::uint32_t divergent, std::uint32_t position);
// The way of all active local devices: 0 where nothing diverges, or where all devices are local,
// and none where several ways are active.
std::optional<std::uint64_t> only_way(const detail::MeshImpl& mesh);

// MeshImpl::name and MeshImpl::take_numbers of a way; 0: the mesh's own.
std::uint64_t number_space(const detail::MeshImpl& mesh, std::uint64_t way);
std::uint64_t take_numbers(const detail::MeshImpl& mesh, std::uint64_t way, std::uint64_t count);
// MeshImpl::give_numbers_back.
void give_numbers_back(const detail::MeshImpl& mesh, std::uint64_t way, std::uint64_t first);

// How many numbers the graph takes that this thread captures.
inline std::uint64_t& captured_numbers() noexcept {
  static thread_local std::uint64_t count = 0;
  return count;
}

}  // namespace shmap
