// Copies from global to shared memory that run while the thread continues. For the .cu files.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#if !defined(__CUDACC__)
#include <vector>
#endif

#include "cuda/kernels/launch/launch.h"

namespace shmap::cuda {

// The copies of one thread. After wait() the thread itself sees the copied data, and after a
// following barrier the other threads of its block do.
class AsyncCopies {
 public:
  // Copies 16 bytes; both addresses must be multiples of 16. `real` false: writes zeros and does
  // not read `from`.
  __device__ __forceinline__ void copy16(void* to_shared, const void* from, bool real) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const auto to = static_cast<unsigned>(__cvta_generic_to_shared(to_shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(real ? 16 : 0)
                 : "memory");
#elif defined(__CUDACC__)
    if (real)
      *static_cast<uint4*>(to_shared) = *static_cast<const uint4*>(from);
    else
      *static_cast<uint4*>(to_shared) = uint4{0, 0, 0, 0};
#else
    // The simulator performs every other copy at once and the others as late as possible, so that a
    // missing wait, or a write to memory that is still read, gives wrong results.
    pending_.push_back({to_shared, real ? from : nullptr});
    if (++begun_ % 2 == 0) {
      run(pending_.back());
      pending_.pop_back();
    }
#endif
  }

  // Waits for all copies that this thread has begun.
  __device__ __forceinline__ void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#elif !defined(__CUDACC__)
    for (const Pending& p : pending_) run(p);
    pending_.clear();
#endif
  }

 private:
#if !defined(__CUDACC__)
  struct Pending {
    void* to;
    const void* from;
  };
  static void run(const Pending& p) {
    if (p.from != nullptr)
      std::memcpy(p.to, p.from, 16);
    else
      std::memset(p.to, 0, 16);
  }
  std::vector<Pending> pending_;
  unsigned begun_ = 0;
#endif
};

}  // namespace shmap::cuda
