#include "cuda/device/span_log.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/device/fork_guard.h"
#include "core/device/timeline.h"
#include "cuda/driver/error.h"
#include "cuda/driver/gpus.h"

namespace shmap::cuda {

TimeBase::~TimeBase() {
  if (!forked()) note(cudaEventDestroy(event));
}

SpanLog::~SpanLog() { close(); }

void SpanLog::close() noexcept {
  std::lock_guard lock(mutex_);
  if (forked()) return;
  for (const Span& span : spans_) {
    for (cudaEvent_t event : {span.begin, span.end}) note(cudaEventDestroy(event));
  }
  for (const auto& [gpu, events] : free_) {
    for (cudaEvent_t event : events) note(cudaEventDestroy(event));
  }
  spans_.clear();
  free_.clear();
  bases_.clear();
}

cudaEvent_t SpanLog::take(int gpu) {
  {
    std::lock_guard lock(mutex_);
    std::vector<cudaEvent_t>& free = free_[gpu];
    if (!free.empty()) {
      cudaEvent_t event = free.back();
      free.pop_back();
      return event;
    }
  }
  const GpuScope scope(gpu);
  const UncapturedCalls uncaptured;
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
  return event;
}

std::shared_ptr<const TimeBase> SpanLog::base(int gpu) {
  {
    std::lock_guard lock(mutex_);
    const auto known = bases_.find(gpu);
    if (known != bases_.end() && timeline_now() - known->second->host_ns < base_ns_)
      return known->second;
  }
  const auto made = std::make_shared<TimeBase>(take(gpu));
  const GpuScope scope(gpu);
  const UncapturedCalls uncaptured;
  cudaStream_t idle = nullptr;  // a stream without work, whose event's time is the host's time
  check(cudaStreamCreateWithFlags(&idle, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  cudaError_t code = cudaEventRecord(made->event, idle);
  if (code == cudaSuccess) code = cudaEventSynchronize(made->event);
  made->host_ns = timeline_now();
  note(cudaStreamDestroy(idle));
  check(code, "cudaEventSynchronize");
  std::lock_guard lock(mutex_);
  return bases_.insert_or_assign(gpu, made).first->second;
}

Span SpanLog::begin(const Task& task, int gpu, std::vector<std::pair<int, StreamRole>> places,
                    cudaStream_t native, bool captured) {
  Span span;
  span.name = task.name;
  span.bytes = task.bytes;
  span.gpu = gpu;
  span.places = std::move(places);
  auto from = base(span.gpu);
  if (!captured) span.base = std::move(from);
  span.begin = take(span.gpu);
  span.end = take(span.gpu);
  check(cudaEventRecordWithFlags(span.begin, native,
                                 captured ? cudaEventRecordExternal : cudaEventRecordDefault),
        "cudaEventRecordWithFlags");
  return span;
}

void SpanLog::end(Span& span, cudaStream_t native, bool captured) {
  check(cudaEventRecordWithFlags(span.end, native,
                                 captured ? cudaEventRecordExternal : cudaEventRecordDefault),
        "cudaEventRecordWithFlags");
}

void SpanLog::add(Span span) {
  std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

void SpanLog::tell(const Span& span) {
  TimelineSink* const sink = timeline_sink();
  if (sink == nullptr) return;
  const std::shared_ptr<const TimeBase> from = span.base ? span.base : base(span.gpu);
  ensure_context(span.gpu);
  const auto time = [&](cudaEvent_t event) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, from->event, event), "cudaEventElapsedTime");
    return from->host_ns + std::llround(static_cast<double>(ms) * 1e6);
  };
  const std::int64_t begin = time(span.begin), end = time(span.end);
  for (const auto& [device, role] : span.places) {
    sink->record({span.name, device, role, begin, end, span.bytes});
  }
}

void SpanLog::give_back(const Span& span) noexcept {
  std::lock_guard lock(mutex_);
  try {
    std::vector<cudaEvent_t>& free = free_[span.gpu];
    free.reserve(free.size() + 2);
    free.push_back(span.begin);
    free.push_back(span.end);
  } catch (const std::bad_alloc&) {  // the events are not kept then
    for (cudaEvent_t event : {span.begin, span.end}) note(cudaEventDestroy(event));
  }
}

void SpanLog::deliver() {
  std::vector<Span> done;
  {
    std::lock_guard lock(mutex_);
    // Other threads may have added tasks since the caller's wait.
    const auto ended = std::stable_partition(spans_.begin(), spans_.end(), [](const Span& span) {
      ensure_context(span.gpu);
      const bool runs = cudaEventQuery(span.end) == cudaErrorNotReady;
      if (runs) cudaGetLastError();
      return runs;
    });
    done.assign(std::move_iterator(ended), std::move_iterator(spans_.end()));
    spans_.erase(ended, spans_.end());
  }
  for (const Span& span : done) {
    tell(span);
    give_back(span);
  }
}

}  // namespace shmap::cuda
