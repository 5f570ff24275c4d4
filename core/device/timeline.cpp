#include "core/device/timeline.h"

#include <chrono>
#include <new>
#include <utility>

namespace shmap {

namespace detail {
constinit std::atomic<TimelineSink*> timeline_sink{nullptr};
}

std::int64_t timeline_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void TimelineRecorder::record(const TimelineEvent& event) noexcept {
  std::lock_guard lock(mutex_);
  try {
    events_.push_back(event);
  } catch (const std::bad_alloc&) {
    ++lost_;
  }
}

std::vector<TimelineEvent> TimelineRecorder::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(events_, {});
}

std::int64_t TimelineRecorder::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace shmap
