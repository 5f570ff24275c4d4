// Fault points, at which a test injects a fault. Always compiled in; a point costs one relaxed load
// while no fault is armed.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap::fault {

enum class Action : std::uint8_t { none, throw_, stop, sleep, nan, oom, short_read };

namespace detail {
extern std::atomic<bool> armed;
Action reach(const char* point, int device);
}  // namespace detail

// Code with a fault point calls this function before it does its work, with the name of the fault
// point, and with its device or memory space if it has one. If a fault is armed at that point and
// is due, the function throws Error, stops the process or sleeps; other actions are returned, and
// the calling code performs them. Any thread.
inline Action point(const char* name, int device = -1) {
  if (!detail::armed.load(std::memory_order_relaxed)) [[likely]]
    return Action::none;
  return detail::reach(name, device);
}

// True if any fault is armed.
inline bool armed() noexcept { return detail::armed.load(std::memory_order_relaxed); }

// Arms the faults of a SHMAP_FAULT text, in place of those armed before; "" disarms. A fault is
//   point[@device][#n]:action    throw, stop, sleep or sleep=MILLISECONDS, nan, oom, short_read
// point: a name in the table of fault.cpp, to which a new fault point must be added. n: only the
// n-th time that the point is reached, from 1; without it, every time. Several faults are separated
// by commas. Throws ValueError where the text cannot be parsed.
void arm(std::string_view text);
// How often the point was reached since faults were last armed.
std::int64_t reached(std::string_view point);

// Arms faults while the object lives; its destructor disarms all faults.
class Scoped {
 public:
  explicit Scoped(std::string_view text) { arm(text); }
  ~Scoped() { arm({}); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;
};

}  // namespace shmap::fault
