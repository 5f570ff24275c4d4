// Programs inside programs: how deep they may go, and how often passes go over them.
#pragma once
#include <cstdint>

#include "shmap/error.h"

namespace shmap {

struct Jaxpr;

// No fault of the program that is looked at, as other errors of a check are.
struct TooDeep : ValueError {
  using ValueError::ValueError;
};

// Tracing, the passes and running recurse with the nesting of a program, which has no limit of its
// own: it ends where this thread's stack does. Throws TooDeep, which names the depth and the
// size of the stack, where less than a margin of it is left. On stacks of others (fibres) it
// cannot tell, and lets everything pass.
// `what`: what the next level is, "cond".
void check_nesting(const char* what, SourceLine source = {});

// One visit of a pass to one program, programs inside not counted: they are visits of their own.
// Made first thing by whatever recurses over programs; it checks the nesting.
class PassVisit {
 public:
  PassVisit(const char* pass, const Jaxpr& jaxpr);
  ~PassVisit();
  PassVisit(const PassVisit&) = delete;
  PassVisit& operator=(const PassVisit&) = delete;
};

// How many equations all visits of this thread went over so far: the work of passes, for tests that
// hold it against the size of a program.
std::int64_t equations_visited();

}  // namespace shmap
