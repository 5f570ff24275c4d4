// Writes a trace file in Chrome's format, which Perfetto opens. For each device: a lane of
// computation, a lane of communication, a lane of the named scopes of its computation, and the
// memory in use. For the host: the spans of its threads. Arrows lead from a collective's senders to
// its receivers.
//
// Process and thread ids of the format, for process r of a job: 10000 r is the host, with its
// threads; 10000 r + 1 + d is local device d, with the threads 0 (compute), 1 (communication), 2
// (scopes).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/device/host_log.h"
#include "core/device/timeline.h"

namespace shmap {

struct TraceRecord {
  struct Lane {
    std::string name;  // of the device
    int space;         // its memory space
  };
  std::int64_t begin_ns = 0;          // is shown as time 0
  int process = 0, processes = 1;     // the number of this process, and of all processes
  std::vector<Lane> devices;          // the local ones
  std::vector<TimelineEvent> events;  // sorted by begin
  HostEvents host;
};

// Calls `add` with the file's text, line by line. The labels of the events
// (core/device/span_label.h) must still exist.
void write_trace(const TraceRecord& record, const std::function<void(const std::string&)>& add);

}  // namespace shmap
