// The host log: what the host does while a timeline is recorded: spans (tracing, planning, waiting,
// the user's named scopes), the memory in use, and the exchanges between processes.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace shmap {

struct HostSpan {
  std::string name;
  const char* kind;               // static text: "scope", "trace", "plan", "capture", "wait"
  int thread;                     // of this process, in the order in which they were first seen
  std::int64_t begin_ns, end_ns;  // as timeline_now()
};
struct MemorySample {
  int space;
  std::int64_t at_ns, bytes;
};
// Notes that a task has begun an exchange between processes. `space`, `number` and `round` are the
// same in all processes that take part.
struct ExchangeNote {
  const char* name;  // of the task
  std::int64_t at_ns;
  std::uint64_t space, number;
  std::uint32_t round;
};
struct HostEvents {
  std::vector<HostSpan> spans;
  std::vector<MemorySample> memory;
  std::vector<ExchangeNote> exchanges;
};

namespace detail {
extern constinit std::atomic<bool> host_log_runs;
}
inline bool host_log_runs() noexcept {
  return detail::host_log_runs.load(std::memory_order_acquire);
}

// Any thread may log. Entries are dropped while no log runs, and if there is no memory for them.
void log_host_span(const char* kind, std::string name, std::int64_t begin_ns,
                   std::int64_t end_ns) noexcept;
// `bytes`: those in use in the memory space with id `space` (MemorySpace::id).
void log_memory(int space, std::int64_t bytes) noexcept;
void log_exchange(const ExchangeNote& note) noexcept;

// Starts an empty log.
void start_host_log();
HostEvents stop_host_log();  // in order of recording

// A span from its construction to its destruction; without a log, one branch at each end.
class HostSpanScope {
 public:
  explicit HostSpanScope(const char* kind, const char* name = "") noexcept;
  ~HostSpanScope();
  HostSpanScope(const HostSpanScope&) = delete;
  HostSpanScope& operator=(const HostSpanScope&) = delete;

 private:
  const char* const kind_;
  const char* const name_;
  std::int64_t begin_ns_;  // 0: not recorded
};

}  // namespace shmap
