// Nested programs: how deep programs may be nested, and how often passes visit them.
#pragma once
#include <cstdint>

#include "shmap/error.h"

namespace shmap {

struct Jaxpr;

// Thrown only for nesting. A check that collects errors of a program must not count it as
// one.
struct TooDeep : ValueError {
  using ValueError::ValueError;
};

// Tracing, passes and execution recurse over nested programs. The depth has no fixed limit: throws
// TooDeep, which names the depth and the stack's size, where less than a margin of this thread's
// stack is left. On stacks that the library cannot identify (fibres) it never throws. `what`: the
// construct that opens the next level, "cond".
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
