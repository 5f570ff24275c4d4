// What a trace file says, in Chrome's format (Perfetto opens it). Of each device: a lane of what it
// computes, one of what it communicates, one of the named scopes of what it computes, and the
// memory in use. Of the host: its threads' spans. Arrows lead from a collective's senders to its
// receivers.
//
// Processes and threads of the format, for process r of a job: 10000 r is the host, with its
// threads, and 10000 r + 1 + d is local device d, with the threads 0 (compute), 1 (communication),
// 2 (scopes).
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
  std::int64_t begin_ns = 0;          // becomes time 0
  int process = 0, processes = 1;     // which of how many this one is
  std::vector<Lane> devices;          // the local ones
  std::vector<TimelineEvent> events;  // by their begin
  HostEvents host;
};

// Hands the file to `add`, line by line. Labels of the events (core/device/span_label.h) have to be
// there still.
void write_trace(const TraceRecord& record, const std::function<void(const std::string&)>& add);

}  // namespace shmap
