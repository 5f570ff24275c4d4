// Records the events of the backend during a scope.
#pragma once
#include "core/device/backend.h"
#include "core/device/timeline.h"

namespace shmap::test {

// Passes the backend's events to the recorder. Ends when all work is done, also if an exception
// leaves the scope.
class TimelineScope {
 public:
  TimelineScope(TimelineRecorder& recorder, Backend& backend) : backend_(backend) {
    set_timeline_sink(&recorder);
  }
  ~TimelineScope() {
    // An error is of a task that nobody waited for: whoever left the scope knows of it, or
    // synchronises before.
    stop_recording(backend_);
  }
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

 private:
  Backend& backend_;
};

}  // namespace shmap::test
