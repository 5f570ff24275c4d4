// Timelines of what the devices' streams did, to be opened in Perfetto or chrome://tracing.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace shmap {

// A span on the host's line of traces. In a function under jit: only while it is traced.
struct named_scope {
  explicit named_scope(std::string_view name);
  ~named_scope();
  named_scope(const named_scope&) = delete;
  named_scope& operator=(const named_scope&) = delete;

 private:
  std::string name_;
  long long begin_ns_;
};

namespace profiler {

// How long the streams were busy, summed over devices, and how much of the communication ran while
// some device of the process computed.
struct Overlap {
  double compute_us = 0;
  double communication_us = 0;
  double overlapped_us = 0;
};

// Records from its construction until close() or its end, and writes the file then. One at a time
// in a process.
class Trace {
 public:
  // Error where the file cannot be written, or another trace is running.
  explicit Trace(std::string_view path);
  ~Trace();  // as close(), but an error becomes a warning
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Waits for the devices, stops recording and writes the file. Error where that fails.
  void close();
  // After close(): the streams' work as text over an axis of time, one line a stream, `columns`
  // wide: '#' computing, '~' communicating.
  std::string timeline(int columns = 72) const;
  Overlap overlap() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace profiler
}  // namespace shmap
