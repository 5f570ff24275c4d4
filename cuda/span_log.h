// SpanLog: when tasks ran on the GPUs, for the timeline (core/device/timeline.h).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/device/stream.h"

namespace shmap::cuda {

class CudaStream;

// A task between two events with timing.
struct Span {
  const char* name = "";
  std::int64_t bytes = 0;
  int gpu = 0;
  std::vector<std::pair<int, StreamRole>> places;  // the local devices and roles of its streams
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
};

// Any thread. An event's time becomes one of the host's by an event of that GPU whose time the host
// knows to some microseconds.
class SpanLog {
 public:
  ~SpanLog();
  void close() noexcept;  // gives all events back

  // Records the beginning of a task in the stream, as a node of the graph where it is captured.
  Span begin(const Task& task, std::span<CudaStream* const> streams, cudaStream_t native,
             bool captured);
  void end(Span& span, cudaStream_t native, bool captured);
  // An eager task's, for deliver().
  void add(Span span);
  // Its task is done: tells the timeline's sink.
  void tell(const Span& span);
  void give_back(const Span& span) noexcept;
  // All that was added is done: tells the sink, and starts anew.
  void deliver();

 private:
  struct Base {
    cudaEvent_t event = nullptr;
    std::int64_t host_ns = 0;
  };
  cudaEvent_t take(int gpu);
  const Base& base(int gpu);

  std::mutex mutex_;
  std::map<int, std::vector<cudaEvent_t>> free_;  // by GPU
  std::map<int, Base> bases_;
  std::vector<Span> spans_;
};

}  // namespace shmap::cuda
