// Traces: timelines of what the devices' streams did, as files for Perfetto or chrome://tracing.
#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace shmap {

// Names the operations that are called during this object's lifetime. In a trace file the name is a
// span in the host's row (under jit only while the function is traced), and a span in each device's
// lane of scopes (in every run, and around the derivatives of the operations too).
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

// The microseconds in which the compute and the communication streams were busy, summed over
// devices, and how much of the communication ran while a device of this process computed.
struct Overlap {
  double compute_us = 0;
  double communication_us = 0;
  double overlapped_us = 0;
};

// A Trace records from its construction until close() or its destruction, and then writes the file
// at `path`. A process can have one Trace at a time.
class Trace {
 public:
  // Error where the file cannot be written, or another Trace is recording.
  explicit Trace(std::string_view path);
  ~Trace();  // as close(), but an error is printed as a warning
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Waits for the devices, stops recording and writes the file. Error where writing fails.
  void close();
  // The streams' work as text over a time axis, one line per stream, `columns` characters wide: '#'
  // computing, '~' communicating. Call it after close(); before, it has nothing to show.
  std::string timeline(int columns = 72) const;
  // Call it after close(); before, all figures are 0.
  Overlap overlap() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace profiler
}  // namespace shmap
