// Where devices take different ways: a branch that some of them chose, a trip that some of them no
// longer make. Devices cannot meet in a collective there.
#pragma once
#include <string>
#include <vector>

#include "core/ir/jaxpr.h"

namespace shmap {

// While code runs that only some local devices take, on this thread; exceptions included. The
// others are handed through it too, and what it gives them is thrown away.
class DivergentScope {
 public:
  // what: the function, as "cond"; axes: those over which its predicate varies; active: the local
  // devices that take this way, by position. Referred to, not copied.
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

// The innermost scope of this thread; null where all devices go one way.
const DivergentScope* divergence();
// Whether this thread works for the local device at this position of the mesh.
inline bool is_active_device(std::uint32_t position) {
  const DivergentScope* scope = divergence();
  return !scope || position >= scope->active().size() || scope->active()[position];
}

// CollectiveErrors for a collective over an axis on which a predicate or trip count varies.
// Of one that is about to run under divergence():
void check_divergent_collective(const Primitive& primitive, const Params& params,
                                SourceLine source);
// Of all of a program, nested ones too, that runs where `what` decides by a value which varies
// over `axes`.
void check_divergent_program(const Jaxpr& jaxpr, const char* what, const AxisSet& axes);

}  // namespace shmap
