// jacfwd, jacrev and hessian: all derivatives of a function with respect to its first argument
// (jax.jacfwd, jax.jacrev, jax.hessian).
//
// Every array of the result becomes a tree of the first argument's structure; the derivative of an
// array of shape s by one of shape t has the shape s + t. A struct cannot change its arrays, so the
// result may hold one only where the argument is a single Array.
//
// The function runs once, eagerly where it is eager; its linear part runs for all directions at
// once, mapped by vmap: jacfwd has as many directions as the argument has values, jacrev as many as
// the result. TypeErrors: the argument or the result holds integers or bools.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/flat_call.h"

namespace shmap {

namespace detail {

// Y with a tree of type X for every array.
template <class Y, class X>
struct jac {
  static_assert(std::same_as<X, Array>,
                "the function returns a struct: its Jacobian can be taken only with respect to an "
                "argument that is a single Array");
  using type = Y;
};
template <class Y, class X>
using jac_t = typename jac<Y, X>::type;
template <class X>
struct jac<Array, X> {
  using type = X;
};
template <class T, class X>
struct jac<std::vector<T>, X> {
  using type = std::vector<jac_t<T, X>>;
};
template <class T, class X>
struct jac<std::optional<T>, X> {
  using type = std::optional<jac_t<T, X>>;
};
template <class T, std::size_t N, class X>
struct jac<std::array<T, N>, X> {
  using type = std::array<jac_t<T, X>, N>;
};
template <class T, class X>
struct jac<std::map<std::string, T>, X> {
  using type = std::map<std::string, jac_t<T, X>>;
};
template <class... T, class X>
struct jac<std::tuple<T...>, X> {
  using type = std::tuple<jac_t<T, X>...>;
};
template <class A, class B, class X>
struct jac<std::pair<A, B>, X> {
  using type = std::pair<jac_t<A, X>, jac_t<B, X>>;
};

// For each leaf of the result, one for each leaf of the first argument.
std::vector<Array> jacobian_leaves(bool forward, BodyRef f, FlatTree arguments, SourceLine source);

// The tree of `y` with one of the structure of `x` for every array, whose leaves are taken in
// order.
template <class Y, class X>
jac_t<Y, X> rebuild_jacobian(const Y& y, const X& x, std::vector<Array>& leaves,
                             std::size_t& next) {
  if constexpr (std::same_as<Y, Array>) {
    return rebuild(x, leaves, next);
  } else if constexpr (requires { typename Y::mapped_type; }) {
    jac_t<Y, X> out;
    for (const auto& [key, value] : y) out.emplace(key, rebuild_jacobian(value, x, leaves, next));
    return out;
  } else if constexpr (requires { y.has_value(); }) {
    jac_t<Y, X> out;
    if (y.has_value()) out.emplace(rebuild_jacobian(*y, x, leaves, next));
    return out;
  } else if constexpr (requires(Y container) { container.push_back(*container.begin()); }) {
    jac_t<Y, X> out;
    for (const auto& element : y) out.push_back(rebuild_jacobian(element, x, leaves, next));
    return out;
  } else if constexpr (requires { y.begin(); }) {
    jac_t<Y, X> out;
    for (std::size_t i = 0; i < y.size(); ++i) out[i] = rebuild_jacobian(y[i], x, leaves, next);
    return out;
  } else if constexpr (requires { std::tuple_size<Y>::value; }) {
    // Braces keep the order of evaluation.
    return std::apply(
        [&](const auto&... element) {
          return jac_t<Y, X>{rebuild_jacobian(element, x, leaves, next)...};
        },
        y);
  } else {
    return rebuild(y, leaves, next);  // a struct, with respect to one array
  }
}

template <bool forward, class F>
class Jacobian {
 public:
  Jacobian(F f, SourceLine source) : f_(std::move(f)), source_(source) {}

  template <class A0, class... A>
  requires Traceable<F, A0, A...>
  auto operator()(const A0& first, const A&... rest) const
      -> jac_t<result_t<F, A0, A...>, arg_t<A0>> {
    FlatCall<F, A0, A...> call(f_, first, rest...);
    std::vector<Array> leaves =
        jacobian_leaves(forward, BodyRef(call), flatten_arguments(first, rest...), source_);
    std::size_t next = 0;
    return rebuild_jacobian(structure_of(call.like()), structure_of(first), leaves, next);
  }
  template <class... A>
  requires(sizeof...(A) == 0 || !Traceable<F, A...>) auto operator()(const A&...) const {
    static_assert(sizeof...(A) > 0,
                  "jacfwd, jacrev and hessian need an argument to differentiate with respect to");
    return explain_untraceable<F, A...>();
  }

 private:
  mutable F f_;
  SourceLine source_;
};

}  // namespace detail

// By forward mode: for results of more values than the argument has.
template <class F>
detail::Jacobian<true, std::decay_t<F>> jacfwd(F&& f, SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), source};
}

// By reverse mode: for results of fewer values than the argument has.
template <class F>
detail::Jacobian<false, std::decay_t<F>> jacrev(F&& f, SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), source};
}

// The second derivatives: jacfwd of jacrev.
template <class F>
auto hessian(F&& f, SourceLine source = SourceLine::current()) {
  return jacfwd(jacrev(std::forward<F>(f), source), source);
}

}  // namespace shmap
