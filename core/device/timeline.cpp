#include "core/device/timeline.h"

#include <chrono>
#include <new>
#include <utility>

#include "core/device/backend.h"

namespace shmap {

namespace detail {
constinit std::atomic<TimelineSink*> timeline_sink{nullptr};
}

std::int64_t timeline_now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::exception_ptr stop_recording(Backend& backend) noexcept {
  std::exception_ptr failed;
  const auto synchronize = [&] {
    try {
      backend.synchronize();
    } catch (...) {
      if (failed == nullptr) failed = std::current_exception();
    }
  };
  synchronize();
  set_timeline_sink(nullptr);
  synchronize();
  return failed;
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
