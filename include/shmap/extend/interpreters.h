// What interpreters of programs are written with (jax.extend.interpreters): a loop over equations
// that keeps their order, effects included, and in which user code decides what each means.
//
//   auto doubled = extend::interpret(jaxpr, args, [](const extend::Eqn& e, extend::Arrays in) {
//     extend::Arrays out = extend::bind(e, in);
//     …
//     return out;
//   });
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "shmap/extend/core.h"

namespace shmap {

namespace detail {
[[noreturn]] void throw_bound_twice(const ShapedArray& type);
[[noreturn]] void throw_unbound(const ShapedArray& type);
[[noreturn]] void throw_value_count(std::size_t vars, std::size_t values);
}  // namespace detail

namespace extend {

// Runs one equation on other operands through the current trace: eagerly, or as a part of what is
// traced, differentiated or mapped here. ValueError where there are more or fewer operands than the
// equation has.
Arrays bind(const Eqn& eqn, Arrays inputs, SourceLine source = SourceLine::current());

// A value for each variable of a program.
template <class T>
class Environment {
 public:
  // ValueError where it has a value already.
  void write(const Var& var, T value);
  void write(const std::vector<Var>& vars, std::vector<T> values);
  bool contains(const Var& var) const { return values_.contains(var); }
  // ValueError where it has none.
  const T& read(const Var& var) const;

 private:
  std::map<Var, T> values_;
};

// What an equation gives for these operands.
using EqnRule = std::function<Arrays(const Eqn& eqn, Arrays inputs)>;
// The program applied to values, with `rule` in the place of each of its equations, in their order.
// Programs inside of equations are the rule's to go into. ValueError where the number of arguments,
// or of a rule's results, is wrong.
Arrays interpret(const ClosedJaxpr& jaxpr, Arrays args, const EqnRule& rule,
                 SourceLine source = SourceLine::current());

// ---- inline parts

template <class T>
void Environment<T>::write(const Var& var, T value) {
  if (!values_.emplace(var, std::move(value)).second) shmap::detail::throw_bound_twice(var.type());
}
template <class T>
void Environment<T>::write(const std::vector<Var>& vars, std::vector<T> values) {
  if (vars.size() != values.size()) shmap::detail::throw_value_count(vars.size(), values.size());
  for (std::size_t i = 0; i < vars.size(); ++i) write(vars[i], std::move(values[i]));
}
template <class T>
const T& Environment<T>::read(const Var& var) const {
  const auto it = values_.find(var);
  if (it == values_.end()) shmap::detail::throw_unbound(var.type());
  return it->second;
}

}  // namespace extend
}  // namespace shmap
