#include "core/ir/nesting.h"

#include <pthread.h>

#include <algorithm>
#include <string>

#include "core/ir/jaxpr.h"
#include "core/ir/trace.h"

namespace shmap {

namespace {

// The stack that must remain free: for the code at the innermost level (kernels, libraries), and
// for destroying programs, which cannot report an error. On small stacks the margin is smaller.
constexpr std::uintptr_t kMargin = 512 << 10;

struct StackBounds {
  std::uintptr_t low = 0, high = 0;
  std::uintptr_t margin() const { return std::min(kMargin, (high - low) / 4); }
};

StackBounds bounds_of_thread() {
  StackBounds bounds;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return bounds;
  void* low = nullptr;
  std::size_t size = 0;
  if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
    bounds.low = reinterpret_cast<std::uintptr_t>(low);
    bounds.high = bounds.low + size;
  }
  pthread_attr_destroy(&attributes);
  return bounds;
}

// Stack addresses from this one up need no exact check; at first there are none.
thread_local std::uintptr_t known_good_above = ~std::uintptr_t{0};
thread_local int visits = 0;  // the number of visits that have not ended
thread_local std::int64_t equations = 0;

[[gnu::noinline]] void look_closely(std::uintptr_t here, const char* what, SourceLine source) {
  const StackBounds bounds = bounds_of_thread();
  if (here < bounds.low || here >= bounds.high) return;
  known_good_above = bounds.low + bounds.margin();
  if (here >= known_good_above) return;
  const int depth = std::max(visits, trace_depth());
  throw TooDeep(std::string(what) + ": programs are nested " + std::to_string(depth) +
                " deep, and this thread's stack of " +
                std::to_string((bounds.high - bounds.low) >> 10) +
                " KiB has no room for another level: repeat with a loop (scan, fori_loop) "
                "instead of nesting, or use a thread with a larger stack (ulimit -s)" +
                at_line(source));
}

}  // namespace

void check_nesting(const char* what, SourceLine source) {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (here < known_good_above) [[unlikely]]
    look_closely(here, what, source);
}

PassVisit::PassVisit(const char* pass, const Jaxpr& jaxpr) {
  check_nesting(pass, jaxpr.eqns.empty() ? SourceLine{} : jaxpr.eqns.front().source);
  ++visits;
  equations += static_cast<std::int64_t>(jaxpr.eqns.size());
}

PassVisit::~PassVisit() { --visits; }

std::int64_t equations_visited() { return equations; }

}  // namespace shmap
