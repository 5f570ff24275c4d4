// Who makes and who uses the values of a program, for passes that look for patterns in it.
#pragma once
#include <vector>

#include "core/ir/jaxpr.h"

namespace shmap {

class ProgramIndex {
 public:
  // `jaxpr` has to outlive it.
  explicit ProgramIndex(const Jaxpr& jaxpr);

  const Jaxpr& jaxpr() const { return jaxpr_; }
  const Eqn& eqn(int i) const { return jaxpr_.eqns[static_cast<std::size_t>(i)]; }
  // The equation that makes it; -1 for an argument, a literal, and what was taken away.
  int maker(const Atom& a) const;
  // That equation, where it is of that primitive; else null.
  const Eqn* made_by(const Atom& a, const Primitive& primitive) const;
  // The equations that use a result, each once.
  const std::vector<int>& users(const Var* v) const;
  bool is_result(const Var* v) const;  // of the program
  // From now on nothing is made of its results.
  void take_away(int i) { gone_[static_cast<std::size_t>(i)] = true; }

 private:
  struct Use {
    int maker = -1;
    bool is_result = false;
    std::vector<int> users;
  };
  const Jaxpr& jaxpr_;
  VarMap<Use> uses_;
  std::vector<bool> gone_;
};

// Where the dims of a value lie in a larger one that it is a part of, or that repeats it: each
// dim's place there, or -1 where the value is the same all along.
//
// Whether `e` only moves or repeats elements (a transposition, a broadcast, a reshape to other
// extents of 1); if so, `places` of its result becomes that of its operand.
bool go_through_view(const Eqn& e, IntList* places);

// The place of a dim of which each device has another part.
inline constexpr std::int64_t kApart = -2;
// The same, and through what devices do to hold blocks that vary: casts, and parts along dims,
// whose place is kApart then. An operand that has none of those left is the same as its result,
// repeated.
bool go_through_repetition(const Eqn& e, IntList* places);

// 0, 1 … n - 1.
IntList own_places(int n);

// The number that a literal is. False where it is none, or a key.
bool literal_number(const Atom& a, double* value);

}  // namespace shmap
