// jacfwd, jacrev and hessian: the full Jacobian, or Hessian, of a function with respect to its
// first argument (jax.jacfwd, jax.jacrev, jax.hessian).
//
// Every array of the function's result becomes a tree of the structure of the first argument; the
// derivative of an array of shape s with respect to an array of shape t has shape s + t. The
// members of a struct are Arrays and cannot become trees, so a result may contain a struct only
// where the first argument is a single Array.
//
// The function is called once; in an eager call its operations run eagerly. The function's linear
// part then runs for all directions at once, batched by vmap: jacfwd has one direction per element
// of the argument, jacrev one per element of the result. TypeError where the argument or the result
// holds integers or bools.
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

// The type Y with every Array replaced by X.
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

// For each leaf of the result, in order, one array per leaf of the first argument.
std::vector<Array> jacobian_leaves(bool forward, BodyRef f, FlatTree arguments, SourceLine source);

// The tree `y` with every array replaced by a tree of the structure of `x`, whose leaves are taken
// from `leaves` in order.
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
    // A braced list is evaluated from left to right.
    return std::apply(
        [&](const auto&... element) {
          return jac_t<Y, X>{rebuild_jacobian(element, x, leaves, next)...};
        },
        y);
  } else {  // a struct: x is one array
    return rebuild(y, leaves, next);
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

// The Jacobian by forward mode, which is cheaper where the result has more elements than the
// argument.
template <class F>
detail::Jacobian<true, std::decay_t<F>> jacfwd(F&& f, SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), source};
}

// The Jacobian by reverse mode, which is cheaper where the result has fewer elements than the
// argument.
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
