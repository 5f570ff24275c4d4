// SpanLog: when tasks ran on the GPUs, for the timeline (core/device/timeline.h).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/device/stream.h"

namespace shmap::cuda {

class CudaStream;

// An event of a GPU whose time the host knows to some microseconds.
struct TimeBase {
  cudaEvent_t event = nullptr;
  std::int64_t host_ns = 0;

  explicit TimeBase(cudaEvent_t made) noexcept : event(made) {}
  ~TimeBase();
  TimeBase(const TimeBase&) = delete;
  TimeBase& operator=(const TimeBase&) = delete;
};

// A task between two events with timing.
struct Span {
  const char* name = "";
  std::int64_t bytes = 0;
  int gpu = 0;
  std::vector<std::pair<int, StreamRole>> places;  // the local devices and roles of its streams
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  // Null where it is a node of a graph, whose launches record it again and again.
  std::shared_ptr<const TimeBase> base;
};

// Any thread. An event's time becomes one of the host's by the time that passed since a base. CUDA
// gives that in milliseconds as a float, which is exact to half a microsecond for the first eight
// seconds and to 8 after 100, so a base is used no longer.
class SpanLog {
 public:
  static constexpr std::int64_t kBaseNs = 8'000'000'000;

  ~SpanLog();
  void set_base_ns(std::int64_t ns) noexcept { base_ns_ = ns; }  // for tests, which can't wait
  void close() noexcept;                                         // gives all events back

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
  cudaEvent_t take(int gpu);
  std::shared_ptr<const TimeBase> base(int gpu);

  std::mutex mutex_;
  std::map<int, std::vector<cudaEvent_t>> free_;  // by GPU
  std::map<int, std::shared_ptr<const TimeBase>> bases_;
  std::vector<Span> spans_;
  std::int64_t base_ns_ = kBaseNs;
};

}  // namespace shmap::cuda
