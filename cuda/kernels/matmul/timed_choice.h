// Helpers for the choice by time between several ways to compute the same results.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <string>

namespace shmap::cuda {

// A kind of GPU: on GPUs that agree in all of these, the same code takes the same time.
struct GpuKind {
  int major = 0, minor = 0, processors = 0;
  std::string name;
};
GpuKind kind_of(int gpu);

// A later candidate must be this much faster than an earlier one: smaller differences are noise.
inline constexpr float kWorthwhile = 0.99f;

bool is_capturing(cudaStream_t stream);

// Returns the milliseconds of a run, which enqueues its work on `stream`; negative if the run
// returns false, because it cannot. Blocks until the stream is idle. A candidate is not measured
// further if a single run takes many times as long as `most`, the time of the best so far; 0: there
// is none yet.
float time_of_run(cudaStream_t stream, const std::function<bool()>& run, float most);

}  // namespace shmap::cuda
