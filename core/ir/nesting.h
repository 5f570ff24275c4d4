// Nested programs: how deep programs may be nested, and how often passes visit them.
#pragma once
#include <cstdint>

#include "shmap/error.h"

namespace shmap {

struct Jaxpr;

// Thrown only for nesting. A check that collects the errors of a program must not count a TooDeep
// as one of them.
struct TooDeep : ValueError {
  using ValueError::ValueError;
};

// To be called where tracing, passes and execution recurse over nested programs. There is no fixed
// limit of the depth: throws TooDeep, which names the depth and the stack's size, if less than a
// margin of this thread's stack is left. On stacks that the library cannot identify (fibres) it
// never throws. `what`: the construct that opens the next level, "cond".
void check_nesting(const char* what, SourceLine source = {});

// One visit of a pass to one program; nested programs are visits of their own. Code that recurses
// over programs makes a PassVisit first; the constructor checks the nesting.
class PassVisit {
 public:
  PassVisit(const char* pass, const Jaxpr& jaxpr);
  ~PassVisit();
  PassVisit(const PassVisit&) = delete;
  PassVisit& operator=(const PassVisit&) = delete;
};

// How many equations all visits of this thread have covered so far: tests compare this measure of
// the passes' work with the size of the program.
std::int64_t equations_visited();

}  // namespace shmap
