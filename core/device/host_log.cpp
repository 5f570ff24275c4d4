#include "core/device/host_log.h"

#include <mutex>
#include <new>
#include <utility>

#include "core/device/timeline.h"

namespace shmap {

namespace detail {
constinit std::atomic<bool> host_log_runs{false};
}

namespace {

struct Log {
  std::mutex mutex;
  HostEvents events;
};
Log& the_log() {
  static auto* log = new Log();  // never destroyed: threads may log until the process ends
  return *log;
}

int thread_number() noexcept {
  static std::atomic<int> threads{0};
  static thread_local const int number = threads.fetch_add(1);
  return number;
}

template <class Add>
void add(Add&& put) noexcept {
  if (!host_log_runs()) return;
  Log& log = the_log();
  std::lock_guard lock(log.mutex);
  if (!host_log_runs()) return;
  try {
    put(log.events);
  } catch (const std::bad_alloc&) {
    // Only the trace lacks this span.
  }
}

}  // namespace

void log_host_span(const char* kind, std::string name, std::int64_t begin_ns,
                   std::int64_t end_ns) noexcept {
  add([&](HostEvents& e) {
    e.spans.push_back({std::move(name), kind, thread_number(), begin_ns, end_ns});
  });
}

void log_memory(int space, std::int64_t bytes) noexcept {
  add([&](HostEvents& e) { e.memory.push_back({space, timeline_now(), bytes}); });
}

void log_exchange(const ExchangeNote& note) noexcept {
  add([&](HostEvents& e) { e.exchanges.push_back(note); });
}

void start_host_log() {
  Log& log = the_log();
  std::lock_guard lock(log.mutex);
  log.events = {};
  detail::host_log_runs.store(true, std::memory_order_release);
}

HostEvents stop_host_log() {
  Log& log = the_log();
  std::lock_guard lock(log.mutex);
  detail::host_log_runs.store(false, std::memory_order_release);
  return std::exchange(log.events, {});
}

HostSpanScope::HostSpanScope(const char* kind, const char* name) noexcept
    : kind_(kind), name_(name), begin_ns_(host_log_runs() ? timeline_now() : 0) {}

HostSpanScope::~HostSpanScope() {
  if (begin_ns_ == 0) return;
  try {
    log_host_span(kind_, name_, begin_ns_, timeline_now());
  } catch (const std::bad_alloc&) {
    // Only the trace lacks this event.
  }
}

}  // namespace shmap
