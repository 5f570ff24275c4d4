// Which equations define and read the values of a program; all passes use this index.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/pointer_map.h"
#include "core/ir/jaxpr.h"

namespace shmap {

// An equation's number is its index in the program. The equations of a draft need not be in order.
class ProgramIndex {
 public:
  // `jaxpr` must outlive this object and keep its equations.
  explicit ProgramIndex(const Jaxpr& jaxpr);

  const Jaxpr& jaxpr() const { return jaxpr_; }
  int size() const { return static_cast<int>(jaxpr_.eqns.size()); }
  const Eqn& eqn(int i) const { return jaxpr_.eqns[static_cast<std::size_t>(i)]; }
  // The equation that defines `a`; -1 for an argument, a literal, and results of an equation that
  // was taken away.
  int maker(const Atom& a) const;
  // The equation that defines `a`; null where there is none.
  const Eqn* made_by(const Atom& a) const;
  // The same, null also where the equation is of another primitive.
  const Eqn* made_by(const Atom& a, const Primitive& primitive) const;
  // The equations that read v, in order, each once.
  std::span<const int> users(const Var* v) const;
  // How often equations and the program's results read v.
  int reads(const Var* v) const;
  // The only equation that reads v, where it reads v once and v is not a result of the program;
  // otherwise -1.
  int only_user(const Var* v) const;
  bool is_result(const Var* v) const;  // of the program
  // The largest number of collectives, or of equations whose programs may hold collectives, on a
  // path of equations to `a`.
  int depth(const Atom& a) const;

  // The number of variables, and the number of v among them, from 0 on; -1 where the program does
  // not have v.
  int value_count() const { return static_cast<int>(values_.size()); }
  int number(const Var* v) const;

  // Equation i no longer counts as the definition of its results.
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

// `places` maps each dim of a value to a dim of a larger value, of which the value is a part or
// which repeats the value; -1 for a dim along which the larger value repeats it.
//
// True if `e` only moves or repeats elements (a transposition, a broadcast, a reshape that only
// changes extents of 1). Then `places` of its result becomes `places` of its operand.
bool go_through_view(const Eqn& e, IntList* places);

// The entry of `places` for a dim along which each device has a different part.
inline constexpr std::int64_t kApart = -2;
// The same as go_through_view, but also goes through collectives that move no data: casts, and
// parts along dims, whose entries become kApart. If an operand has no entry kApart, the result only
// repeats the operand.
bool go_through_repetition(const Eqn& e, IntList* places);

// 0, 1 … n - 1.
IntList own_places(int n);

// The value of a literal as a number. False where `a` is not a literal, or is a key.
bool literal_number(const Atom& a, double* value);

}  // namespace shmap
