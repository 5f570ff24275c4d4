#include "core/base/fault.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/printable.h"
#include "shmap/error.h"

namespace shmap::fault {
namespace detail {
constinit std::atomic<bool> armed{false};
}
namespace {

struct Fault {
  std::string point;
  int device = -1;       // -1: any device
  std::int64_t nth = 0;  // 0: every time
  Action action = Action::none;
  std::int64_t milliseconds = 100;
  std::int64_t matches = 0;
};
struct Point {
  std::string name;
  std::int64_t reached = 0;
};
struct State {
  std::mutex mutex;
  std::vector<Fault> faults;
  std::vector<Point> points;
};
State& state() {
  static State* s = new State;  // never destroyed, since fault points are reached until the process
                                // ends
  return *s;
}

// All fault points, and what the number after @ counts there; a fault at any other name would never
// happen.
constexpr std::pair<std::string_view, const char*> kPoints[] = {
    {"allocate", "memory space"}, {"collective", "device"}, {"finish", "process"},
    {"kernel", "device"},         {"read", "device"},       {"receive", "process"},
    {"send", "process"},          {"start", "process"}};

auto find_point(std::string_view name) {
  return std::ranges::find(kPoints, name, &std::pair<std::string_view, const char*>::first);
}

[[noreturn]] void refuse(std::string_view given) {
  throw ValueError("fault \"" + printable(given) +
                   "\" cannot be read: accepted is point[@device][#n]:action with point allocate, "
                   "collective, finish, kernel, read, receive, send or start, and action throw, "
                   "stop, sleep, sleep=MILLISECONDS, "
                   "nan, oom or short_read; several are separated "
                   "by commas (SHMAP_FAULT)");
}

template <class T>
T number(std::string_view digits, std::string_view whole) {
  T n = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || end != digits.data() + digits.size() || n < 0) refuse(whole);
  return n;
}

Fault parse(std::string_view text) {
  Fault fault;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse(text);
  std::string_view where = text.substr(0, colon), what = text.substr(colon + 1);
  if (const auto hash = where.find('#'); hash != std::string_view::npos) {
    fault.nth = number<std::int64_t>(where.substr(hash + 1), text);
    if (fault.nth == 0) refuse(text);
    where = where.substr(0, hash);
  }
  if (const auto at = where.find('@'); at != std::string_view::npos) {
    fault.device = number<int>(where.substr(at + 1), text);
    where = where.substr(0, at);
  }
  if (find_point(where) == std::end(kPoints)) refuse(text);
  fault.point = where;
  if (what.starts_with("sleep=")) {
    fault.milliseconds = number<std::int64_t>(what.substr(6), text);
    what = "sleep";
  }
  constexpr std::pair<std::string_view, Action> kActions[] = {
      {"throw", Action::throw_}, {"stop", Action::stop}, {"sleep", Action::sleep},
      {"nan", Action::nan},      {"oom", Action::oom},   {"short_read", Action::short_read}};
  for (const auto& [name, action] : kActions) {
    if (what == name) fault.action = action;
  }
  if (fault.action == Action::none) refuse(text);
  return fault;
}

}  // namespace

Action detail::reach(const char* point, int device) {
  Action action = Action::none;
  std::int64_t milliseconds = 0;
  {
    State& s = state();
    std::lock_guard lock(s.mutex);
    Point* found = nullptr;
    for (Point& known : s.points) {
      if (known.name == point) found = &known;
    }
    if (found == nullptr) found = &s.points.emplace_back(Point{point});
    ++found->reached;
    for (Fault& fault : s.faults) {
      if (fault.point != point || (fault.device >= 0 && fault.device != device)) continue;
      ++fault.matches;
      if (action == Action::none && (fault.nth == 0 || fault.nth == fault.matches)) {
        action = fault.action;
        milliseconds = fault.milliseconds;
      }
    }
  }
  if (action == Action::stop) std::raise(SIGSTOP);
  if (action == Action::sleep) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  }
  if (action == Action::throw_) {
    throw Error("fault injected at " + std::string(point) +
                (device >= 0 ? std::string(" of ") + find_point(point)->second + " " +
                                   std::to_string(device)
                             : "") +
                " (SHMAP_FAULT)");
  }
  return action;
}

void arm(std::string_view text) {
  std::vector<Fault> faults;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    faults.push_back(parse(rest.substr(0, comma)));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  State& s = state();
  std::lock_guard lock(s.mutex);
  detail::armed.store(!faults.empty(), std::memory_order_relaxed);
  s.faults = std::move(faults);
  s.points.clear();
}

std::int64_t reached(std::string_view point) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  for (const Point& known : s.points) {
    if (known.name == point) return known.reached;
  }
  return 0;
}

}  // namespace shmap::fault
