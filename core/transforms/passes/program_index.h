// Who makes and who uses the values of a program: the one index of all passes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/pointer_map.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// Equations are numbered by their places. Those of a draft need not be in order yet.
class ProgramIndex {
 public:
  // `jaxpr` has to outlive it, and to keep its equations.
  explicit ProgramIndex(const Jaxpr& jaxpr);

  const Jaxpr& jaxpr() const { return jaxpr_; }
  int size() const { return static_cast<int>(jaxpr_.eqns.size()); }
  const Eqn& eqn(int i) const { return jaxpr_.eqns[static_cast<std::size_t>(i)]; }
  // The equation that makes it; -1 for an argument, a literal, and what was taken away.
  int maker(const Atom& a) const;
  // That equation, where there is one; else null.
  const Eqn* made_by(const Atom& a) const;
  // The same, where it is of that primitive.
  const Eqn* made_by(const Atom& a, const Primitive& primitive) const;
  // The equations that read it, in order, each once.
  std::span<const int> users(const Var* v) const;
  // How often equations and the program's results read it.
  int reads(const Var* v) const;
  // The equation that alone reads it, and once; -1 where that is none, or it is a result.
  int only_user(const Var* v) const;
  bool is_result(const Var* v) const;  // of the program
  // How many collectives, or programs that may hold some, it has come through in a row.
  int depth(const Atom& a) const;

  // The number of each variable that is read or made, from 0 on; -1 of others.
  int value_count() const { return static_cast<int>(values_.size()); }
  int number(const Var* v) const;

  // From now on nothing is made of its results.
  void take_away(int i) { gone_[static_cast<std::size_t>(i)] = true; }

 private:
  struct Value {
    int maker = -1, depth = 0;
    int reads = 0, users = 0;
    std::uint32_t first_user = 0;  // in users_
    bool is_result = false;
  };
  const Value* find(const Var* v) const;
  std::uint32_t add(const Var* v);

  const Jaxpr& jaxpr_;
  PointerMap<std::uint32_t> numbers_;  // from 1 on
  std::vector<Value> values_;
  std::vector<int> users_;
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
