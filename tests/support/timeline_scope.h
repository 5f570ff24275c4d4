// Recording what runs, for as long as a scope lasts.
#pragma once
#include "core/device/backend.h"
#include "core/device/timeline.h"

namespace shmap::test {

// Gives what the backend runs to the recorder. Ends when all of it is done, also where the scope is
// left by an exception.
class TimelineScope {
 public:
  TimelineScope(TimelineRecorder& recorder, Backend& backend) : backend_(backend) {
    set_timeline_sink(&recorder);
  }
  ~TimelineScope() {
    try {
      backend_.synchronize();
    } catch (...) {  // of a task that nobody waited for: whoever left the scope knows of it, or
    }                // synchronises before
    set_timeline_sink(nullptr);
  }
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

 private:
  Backend& backend_;
};

}  // namespace shmap::test
