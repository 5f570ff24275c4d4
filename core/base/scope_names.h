// The named scopes that are open on a thread, and the scopes that source lines belong to.
//
// An equation of a program keeps the scope in which it was traced: the file name of its source line
// is a separate copy of the name, by whose address scope_of() finds the scope. Every transform and
// pass that keeps source lines therefore keeps scopes.
#pragma once
#include <string>

#include "shmap/error.h"

namespace shmap {

// Opens a scope on this thread; every call needs a call of leave_scope().
void enter_scope(const std::string& name);
void leave_scope() noexcept;
// The open scopes of this thread, outermost first: "layer/attention"; "" where none is open.
std::string current_scope();

// Returns the source line, put into the open scopes of this thread; the line itself if no scope is
// open. Scopes that the line already had become the inner ones. At most 65536 pairs of a file and a
// scope are distinguished; lines of further pairs stay unchanged.
SourceLine in_current_scope(SourceLine line);
// The line with the scopes of `outer` as its outer scopes.
SourceLine in_scope_of(SourceLine outer, SourceLine line);
// "layer/attention", or "".
std::string scope_of(SourceLine line);
// The scope `outer/inner`; `inner` alone where it already begins with `outer`.
std::string joined_scopes(const std::string& outer, const std::string& inner);

// While the object lives, this thread has no open scopes: for the tracing of a program that is used
// again from other scopes.
class ScopesHidden {
 public:
  ScopesHidden() noexcept;
  ~ScopesHidden();
  ScopesHidden(const ScopesHidden&) = delete;
  ScopesHidden& operator=(const ScopesHidden&) = delete;

 private:
  std::string hidden_;
};

// While the object lives, the scopes of that source line are open on this thread, inside of those
// that were open before: for the programs in the parameters of an equation.
class ScopesOf {
 public:
  explicit ScopesOf(SourceLine line);
  ~ScopesOf();
  ScopesOf(const ScopesOf&) = delete;
  ScopesOf& operator=(const ScopesOf&) = delete;

 private:
  std::string before_;
};

}  // namespace shmap
