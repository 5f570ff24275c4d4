#include "cuda/kernels/matmul/timed_choice.h"

#include <algorithm>

#include "cuda/driver/error.h"

namespace shmap::cuda {

namespace {

// A candidate is run for about kTimedMs, at least kFewestRuns and at most kMostRuns times, so that
// a difference of one percent shows; fewer times if that would exceed kMostTimedMs.
constexpr float kTimedMs = 2, kMostTimedMs = 20;
constexpr int kFewestRuns = 10, kMostRuns = 400;
// A candidate that takes this many times as long as the best in a single run is not measured
// further.
constexpr float kHopeless = 1.5f;

struct Timer {
  cudaEvent_t event = nullptr;
  Timer() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Timer() { note(cudaEventDestroy(event)); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
};

}  // namespace

GpuKind kind_of(int gpu) {
  GpuKind kind;
  check(cudaDeviceGetAttribute(&kind.major, cudaDevAttrComputeCapabilityMajor, gpu),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&kind.minor, cudaDevAttrComputeCapabilityMinor, gpu),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&kind.processors, cudaDevAttrMultiProcessorCount, gpu),
        "cudaDeviceGetAttribute");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
  kind.name = properties.name;
  return kind;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &captured), "cudaStreamIsCapturing");
  return captured != cudaStreamCaptureStatusNone;
}

float time_of_run(cudaStream_t stream, const std::function<bool()>& run, float most) {
  const Timer start, stop;
  const auto time_of = [&](int runs) -> float {
    check(cudaEventRecord(start.event, stream), "cudaEventRecord");
    for (int i = 0; i < runs; ++i)
      if (!run()) return -1;
    check(cudaEventRecord(stop.event, stream), "cudaEventRecord");
    check(cudaEventSynchronize(stop.event), "cudaEventSynchronize after timing a candidate");
    float time = 0;
    check(cudaEventElapsedTime(&time, start.event, stop.event), "cudaEventElapsedTime");
    return time / static_cast<float>(runs);
  };
  if (time_of(1) < 0) return -1;  // the first run loads its code
  const float once = time_of(1);
  if (once < 0 || (most > 0 && once > most * kHopeless)) return once;
  const float of_least = std::max(once, 1e-3f);
  const int runs =
      static_cast<int>(std::min(std::clamp<float>(kTimedMs / of_least, kFewestRuns, kMostRuns),
                                std::max(1.f, kMostTimedMs / of_least)));
  return time_of(runs);
}

}  // namespace shmap::cuda
