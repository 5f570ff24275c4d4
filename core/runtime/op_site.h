// OpSite: which call of a kernel this is, for the errors that come out of it.
#pragma once
#include <atomic>
#include <cstdint>

#include "core/runtime/kernel.h"

namespace shmap {

struct OpSite {
  const Primitive* primitive;
  const detail::MeshImpl* mesh;
  std::uint32_t position;  // the local device of the mesh
  std::uint64_t number;    // of the step, counted from the start of the process
  SourceLine source;

  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> steps{0};
    return steps.fetch_add(1, std::memory_order_relaxed) + 1;
  }
};

// Runs the kernel. What it throws comes out with op, number, device, mesh position and the caller's
// line added: a library error keeps its kind, any other std::exception becomes a DeviceError, and
// what is no exception passes as it is. The fault point "kernel" is here.
void run_kernel(KernelFn run, const KernelCall& call, const OpSite& site);

// "add (op 17) on CpuDevice(id=3) at mesh coordinates (i, j,) = (1, 1,)"
std::string describe(const OpSite& site);

// Where SHMAP_CHECK_NANS is on: waits for the results, and throws a ValueError that names op,
// device and index where one of them holds a NaN. Otherwise nothing.
void check_nans(const OpSite& site, std::span<StoredNode* const> results);

}  // namespace shmap
