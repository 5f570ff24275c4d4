// Tools for writing interpreters of programs (jax.extend.interpreters): a loop over the equations
// of a program, in order and with effects, in which user code decides what each equation does.
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

// Binds an equation's primitive to other operands under the current trace: it runs eagerly, or is
// traced, differentiated or batched. ValueError where the number of operands is not the equation's.
Arrays bind(const Eqn& eqn, Arrays inputs, SourceLine source = SourceLine::current());

// Maps the variables of a program to values.
template <class T>
class Environment {
 public:
  // ValueError where a variable has a value already, and where the numbers of variables and values
  // differ.
  void write(const Var& var, T value);
  void write(const std::vector<Var>& vars, std::vector<T> values);
  bool contains(const Var& var) const { return values_.contains(var); }
  // ValueError where the variable has no value.
  const T& read(const Var& var) const;

 private:
  std::map<Var, T> values_;
};

// Computes the results of an equation from its operands.
using EqnRule = std::function<Arrays(const Eqn& eqn, Arrays inputs)>;
// Applies a program to values, and calls `rule` for each equation, in program order. Programs
// inside of equations are not interpreted: `rule` must do that itself. ValueError where the number
// of arguments, or of a rule's results, is wrong.
Arrays interpret(const ClosedJaxpr& jaxpr, Arrays args, const EqnRule& rule,
                 SourceLine source = SourceLine::current());

// ---- definitions of templates

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
