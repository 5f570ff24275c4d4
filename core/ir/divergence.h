// Divergence: devices run different code, because only some of them take a branch of a cond or make
// a trip of a loop. Devices that run different code cannot take part in one collective.
#pragma once
#include <string>
#include <vector>

#include "core/ir/jaxpr.h"

namespace shmap {

// Alive while this thread runs code that is meant for only some of the local devices, the active
// ones; an exception ends the scope too. The other devices run the same steps, and their results
// are discarded.
class DivergentScope {
 public:
  // what: the function that diverges, as "cond"; axes: the axes over which its predicate varies;
  // active: by local position, whether the device is active. `active` is not copied, and must
  // outlive this object.
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

// The innermost DivergentScope of this thread; null where all devices run the same code.
const DivergentScope* divergence();
// True if the local device at this position is active in the innermost DivergentScope of this
// thread, or if there is no scope.
inline bool is_active_device(std::uint32_t position) {
  const DivergentScope* scope = divergence();
  return !scope || position >= scope->active().size() || scope->active()[position];
}

// Throws CollectiveError for a collective that is about to run, if the collective is over a mesh
// axis over which the predicate or trip count of one of this thread's DivergentScopes varies.
void check_divergent_collective(const Primitive& primitive, const Params& params,
                                SourceLine source);
// The same check of all collectives of a program, nested programs included, whose execution `what`
// ("cond") decides by a value that varies over `axes`.
void check_divergent_program(const Jaxpr& jaxpr, const char* what, const AxisSet& axes);

}  // namespace shmap
