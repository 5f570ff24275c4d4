// SpanLog: when tasks ran on the GPUs, for the timeline (core/device/timeline.h).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/device/stream.h"

namespace shmap::cuda {

// An event of a GPU whose host time is known to some microseconds.
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
  // Null for a node of a graph, whose launches record the events again.
  std::shared_ptr<const TimeBase> base;
};

// Any thread. The host time of an event is computed from the time since a base event. CUDA returns
// that time in milliseconds as a float, which is exact to half a microsecond for the first eight
// seconds and to 8 microseconds after 100 seconds, so each base is used for a limited time.
class SpanLog {
 public:
  static constexpr std::int64_t kBaseNs = 8'000'000'000;

  ~SpanLog();
  void set_base_ns(std::int64_t ns) noexcept { base_ns_ = ns; }  // for tests
  void close() noexcept;                                         // returns all events

  // Records the beginning of a task in the stream `native` of that GPU; in a capture, as a node of
  // the graph. `places`: see Span.
  Span begin(const Task& task, int gpu, std::vector<std::pair<int, StreamRole>> places,
             cudaStream_t native, bool captured);
  void end(Span& span, cudaStream_t native, bool captured);
  // Adds the span of a task that ran outside of graphs, for deliver().
  void add(Span span);
  // Reports a span to the timeline's sink; its task must be done.
  void tell(const Span& span);
  void give_back(const Span& span) noexcept;  // the span's events
  // Reports the added spans whose tasks are done, and forgets them.
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
