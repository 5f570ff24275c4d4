// OpSite: which call of a kernel is running, for the errors that come from it.
#pragma once
#include <atomic>
#include <cstdint>

#include "core/runtime/kernel.h"

namespace shmap {

struct OpSite {
  const Primitive* primitive;
  const detail::MeshImpl* mesh;
  std::uint32_t position;  // the local device, by its position in the mesh
  std::uint64_t number;    // the step's number, counted from the start of the process
  SourceLine source;

  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> steps{0};
    return steps.fetch_add(1, std::memory_order_relaxed) + 1;
  }
};

// Runs the kernel. Its exceptions are rethrown with the operation, the step's number, the device,
// the mesh position and the caller's line: a library error keeps its class, any other
// std::exception becomes a DeviceError, and an exception of another type is rethrown unchanged. The
// fault point "kernel" is here.
void run_kernel(KernelFn run, const KernelCall& call, const OpSite& site);

// "add (op 17) on CpuDevice(id=3) at mesh coordinates (i, j,) = (1, 1,)"
std::string describe(const OpSite& site);

// True if SHMAP_CHECK_NANS is set.
bool checks_nans();
// Waits for the results, and throws a ValueError that names the operation, the device and the index
// where one of them contains a NaN.
void refuse_nans(const OpSite& site, std::span<StoredNode* const> results);

}  // namespace shmap
