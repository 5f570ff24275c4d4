// The named scopes that are open on a thread, and the scopes that source lines belong to.
//
// An equation of a program keeps the scope in which it was traced: the file name of its source line
// is then a copy of the name, by whose address scope_of() finds the scope. Every transform and pass
// that carries source lines on therefore carries scopes on.
#pragma once
#include <string>

#include "shmap/error.h"

namespace shmap {

// Opens a scope on this thread, until leave_scope() is called as often as enter_scope().
void enter_scope(const std::string& name);
void leave_scope() noexcept;
// The open scopes of this thread, outermost first: "layer/attention"; "" where none is open.
std::string current_scope();

// The line as one of the open scopes: unchanged where none is open. The scopes that the line
// belonged to before become inner ones. At most 65536 pairs of a file and a scope are told apart;
// lines of more pairs stay unchanged.
SourceLine in_current_scope(SourceLine line);
// The line in the scopes of `outer`, which become its outer ones.
SourceLine in_scope_of(SourceLine outer, SourceLine line);
// "layer/attention", or "".
std::string scope_of(SourceLine line);
// The scope and then the scope inside of it. Where `inner` begins with `outer`, it stays as it is.
std::string joined_scopes(const std::string& outer, const std::string& inner);

// While it stands, this thread has no open scopes: for functions whose programs are used again,
// from wherever they are called.
class ScopesHidden {
 public:
  ScopesHidden() noexcept;
  ~ScopesHidden();
  ScopesHidden(const ScopesHidden&) = delete;
  ScopesHidden& operator=(const ScopesHidden&) = delete;

 private:
  std::string hidden_;
};

// While it stands, this thread is in the scopes of that line, too: for the programs in an equation.
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
