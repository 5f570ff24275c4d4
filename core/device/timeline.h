// The hook by which profilers observe the tasks that ran.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/device/stream.h"

namespace shmap {

struct TimelineEvent {
  const char* name;  // as Task::name
  int device;        // local index
  StreamRole role;
  std::int64_t begin_ns, end_ns;  // as timeline_now()
  std::int64_t bytes;
};

class TimelineSink {
 public:
  virtual ~TimelineSink() = default;
  virtual void record(const TimelineEvent& event) noexcept = 0;  // any thread
};

std::int64_t timeline_now() noexcept;  // steady clock, ns

namespace detail {
extern std::atomic<TimelineSink*> timeline_sink;
}
inline TimelineSink* timeline_sink() noexcept {
  return detail::timeline_sink.load(std::memory_order_acquire);
}
// Null turns recording off. The caller must synchronise the backends before it destroys a sink.
inline void set_timeline_sink(TimelineSink* sink) noexcept {
  detail::timeline_sink.store(sink, std::memory_order_release);
}

// A sink that stores its events.
class TimelineRecorder : public TimelineSink {
 public:
  void record(const TimelineEvent& event) noexcept override;
  std::vector<TimelineEvent> take();  // in order of recording; empties the recorder
  std::int64_t lost() const;          // how many events were dropped for want of memory

 private:
  mutable std::mutex mutex_;
  std::vector<TimelineEvent> events_;
  std::int64_t lost_ = 0;
};

}  // namespace shmap
