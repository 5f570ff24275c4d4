// The hook by which profilers observe the tasks that ran.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "core/device/stream.h"

namespace shmap {

class Backend;

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
inline void set_timeline_sink(TimelineSink* sink) noexcept {
  detail::timeline_sink.store(sink, std::memory_order_release);
}
// Turns recording off; the sink may be destroyed afterwards. Waits until all enqueued tasks are
// recorded, then for tasks that started during that wait and still use the sink. Blocks. Returns
// the first error that synchronize() reported, or null.
std::exception_ptr stop_recording(Backend& backend) noexcept;

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
