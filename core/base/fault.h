// Fault points: places where a test makes something go wrong. Compiled in always; a point costs one
// relaxed load when nothing is armed.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace shmap::fault {

enum class Action : std::uint8_t { none, throw_, stop, sleep, nan, oom, short_read };

namespace detail {
extern std::atomic<bool> armed;
Action reach(const char* site, int device);
}  // namespace detail

// The code at `site` (on that device or memory space, where it has one) is about to do its work.
// Throws, stops the process or sleeps where such a fault is armed and due; returns the others for
// the site to act on.
inline Action point(const char* site, int device = -1) {
  if (!detail::armed.load(std::memory_order_relaxed)) [[likely]]
    return Action::none;
  return detail::reach(site, device);
}

// Whether any is.
inline bool armed() noexcept { return detail::armed.load(std::memory_order_relaxed); }

// Arms the faults of a SHMAP_FAULT text, instead of those armed before; "" disarms. A fault is
//   site[@device][#n]:action    throw, stop, sleep or sleep=MILLISECONDS, nan, oom, short_read
// with a site of the table in fault.cpp, which a new fault point is entered in.
// n-th: only the n-th time that the site is reached, from 1 (each time, without). Several are
// separated by commas. ValueError where it cannot be read.
void arm(std::string_view text);
// How often the site was reached since faults were last armed.
std::int64_t reached(std::string_view site);

// Arms for a scope.
class Scoped {
 public:
  explicit Scoped(std::string_view text) { arm(text); }
  ~Scoped() { arm({}); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;
};

}  // namespace shmap::fault
