// Runs the blocks of one launch of a kernel, one after another.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver_types.h"
#include "sim_kernel.h"

namespace shmap_sim {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::uint64_t order;             // a random number that says in what order blocks and threads run
  std::size_t dynamic_shared = 0;  // bytes
};

// cudaErrorLaunchFailure, with a text on stderr, where threads wait for others that don't come;
// cudaErrorIllegalAddress where one touches memory that is not there, or writes beyond the
// dynamic shared memory.
// The caller is the one thread that runs kernels.
cudaError_t run_kernel(const std::string& name, const void* function, const KernelType& type,
                       const LaunchShape& shape, void* const* args);

}  // namespace shmap_sim
