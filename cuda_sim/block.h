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
  std::uint64_t order;             // random number that determines the order of blocks and threads
  std::size_t dynamic_shared = 0;  // bytes
  // Launched by programmatic stream serialization: every thread has to call
  // cudaGridDependencySynchronize.
  bool dependent = false;
};

// cudaErrorLaunchFailure, with a text on stderr, if threads wait for others that never come;
// cudaErrorIllegalAddress if a thread accesses unmapped memory or writes beyond the dynamic shared
// memory. cudaErrorLaunchFailure also for a dependent launch whose threads do not wait for the
// kernels before it. Only the one thread that runs kernels may call this.
cudaError_t run_kernel(const std::string& name, const void* function, const KernelType& type,
                       const LaunchShape& shape, void* const* args);

}  // namespace shmap_sim
