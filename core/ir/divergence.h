// Divergence: devices take different ways, because only some of them take a branch or make a trip.
// Devices on different ways cannot take part in one collective.
#pragma once
#include <string>
#include <vector>

#include "core/ir/jaxpr.h"

namespace shmap {

// Alive while this thread runs code that only some local devices take; exceptions end it too. The
// other devices run the same steps, and their results are discarded.
class DivergentScope {
 public:
  // what: the function that diverges, as "cond"; axes: the axes over which its predicate varies;
  // active: by local position, whether the device takes this way. `active` is referred to, not
  // copied.
  DivergentScope(const char* what, AxisSet axes, const std::vector<bool>& active);
  ~DivergentScope();
  DivergentScope(const DivergentScope&) = delete;
  DivergentScope& operator=(const DivergentScope&) = delete;

  const char* what() const { return what_; }
  const AxisSet& axes() const { return axes_; }
  const std::vector<bool>& active() const { return active_; }
  const DivergentScope* outer() const { return outer_; }

 private:
  const char* what_;
  AxisSet axes_;
  const std::vector<bool>& active_;
  const DivergentScope* outer_;
};

// The innermost DivergentScope of this thread; null where all devices take the same way.
const DivergentScope* divergence();
// True if the local device at this position takes the way that this thread runs.
inline bool is_active_device(std::uint32_t position) {
  const DivergentScope* scope = divergence();
  return !scope || position >= scope->active().size() || scope->active()[position];
}

// A CollectiveError for a collective over an axis over which the predicate or trip count varies.
// This one checks a collective that is about to run under divergence().
void check_divergent_collective(const Primitive& primitive, const Params& params,
                                SourceLine source);
// Checks all collectives of a program, nested programs included, that runs where `what` decides by
// a value that varies over `axes`.
void check_divergent_program(const Jaxpr& jaxpr, const char* what, const AxisSet& axes);

}  // namespace shmap
