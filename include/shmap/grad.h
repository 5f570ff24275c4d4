// grad and value_and_grad: the gradient of a scalar function, by reverse mode (jax.grad).
//
//   grad(f)(x, w)                 with respect to argument 0: a tree of its type
//   grad<1>(f)   grad<0, 1>(f)    to argument 1; to arguments 0 and 1: a std::tuple of trees
//   grad(f, 1)   grad(f, {0, 1})  likewise, where all arguments have one type; a std::array
//   grad(f, has_aux)              f returns std::pair{loss, aux}: {gradient, aux}
//   value_and_grad(…)             {value, gradient}; with has_aux {{loss, aux}, gradient}
//
// f is called once; under an eager grad its operations run eagerly. Throws TypeError where f's
// result is not a floating-point scalar, and where an argument to be differentiated holds integers
// or bools (the message has the leaf's path). Throws ValueError where an argument number is out of
// range. The gradient of an argument that f does not use is zeros. In a shard_map body the gradient
// of an argument that is invariant over a mesh axis is summed over that axis.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/flat_call.h"

namespace shmap {

struct has_aux_t {};
inline constexpr has_aux_t has_aux;

namespace detail {

struct GradLeaves {
  std::vector<Array> outs;       // the function's results
  std::vector<Array> gradients;  // of the leaves of arguments argnums[0], argnums[1], …
};
// A negative argnum counts from the end. aux: f returns a pair of the loss and aux.
GradLeaves grad_leaves(const char* what, BodyRef f, FlatTree arguments,
                       std::span<const int> argnums, bool aux, SourceLine source);

template <class... G>
struct tuple_or_one {
  using type = std::tuple<G...>;
};
template <class G>
struct tuple_or_one<G> {
  using type = G;
};

// The type of argument Arg; void where there is no such argument (`fits` is false then).
template <int Arg, class Arguments>
struct argument_type {
  using type = void;
};
template <int Arg, class... A>
requires(Arg >= 0 &&
         Arg < static_cast<int>(sizeof...(A))) struct argument_type<Arg, std::tuple<A...>> {
  using type = std::tuple_element_t<static_cast<std::size_t>(Arg), std::tuple<A...>>;
};

// ---- the arguments to be differentiated: their numbers as template arguments
template <int... Arg>
struct StaticArgnums {
  template <class... A>
  static constexpr bool fits = ((Arg >= 0 && Arg < static_cast<int>(sizeof...(A))) && ...);
  template <class... A>
  struct result : tuple_or_one<typename argument_type<Arg, std::tuple<arg_t<A>...>>::type...> {};
  static constexpr int list[] = {Arg...};
  std::span<const int> numbers() const { return list; }
  template <class G, class... A>
  G gradient(std::vector<Array>& leaves, const A&... args) const {
    std::size_t next = 0;
    const auto all = std::tie(args...);
    if constexpr (sizeof...(Arg) == 1) {
      return rebuild(std::get<Arg...>(all), leaves, next);
    } else {
      return G{rebuild(std::get<Arg>(all), leaves, next)...};
    }
  }
};

// The same numbers as values, known at run time.
template <std::size_t n, bool list>
struct Argnums {
  template <class... A>
  using first = std::tuple_element_t<0, std::tuple<arg_t<A>...>>;
  template <class... A>
  static constexpr bool fits = (std::same_as<arg_t<A>, first<A...>> && ...);
  template <class... A>
  struct result {
    using type = std::conditional_t<list, std::array<first<A...>, n>, first<A...>>;
  };
  int of[n];
  std::span<const int> numbers() const { return of; }
  template <class G, class... A>
  G gradient(std::vector<Array>& leaves, const A&... args) const {
    std::size_t next = 0;
    const auto one_gradient = [&](int number) {
      first<A...> out;
      if (number < 0) number += static_cast<int>(sizeof...(A));
      int k = 0;
      ((k++ == number ? (out = rebuild(args, leaves, next), 0) : 0), ...);
      return out;
    };
    if constexpr (list) {
      G out;
      for (std::size_t k = 0; k < n; ++k) out[k] = one_gradient(of[k]);
      return out;
    } else {
      return one_gradient(of[0]);
    }
  }
};

// ---- the types of the results
template <class R>
struct LossAndAux {
  static_assert(!sizeof(R), "with has_aux, the function returns std::pair{loss, aux}");
};
template <class Y, class X>
struct LossAndAux<std::pair<Y, X>> {
  using aux = X;
};
template <bool value, bool aux, class R, class G>
struct grad_result {
  using type = G;
};
template <class R, class G>
struct grad_result<true, false, R, G> {
  using type = std::pair<R, G>;
};
template <class R, class G>
struct grad_result<true, true, R, G> {
  using type = std::pair<R, G>;
};
template <class R, class G>
struct grad_result<false, true, R, G> {
  using type = std::pair<G, typename LossAndAux<R>::aux>;
};

template <bool value, bool aux, class F, class Which>
class Grad {
 public:
  Grad(F f, Which which, SourceLine source) : f_(std::move(f)), which_(which), source_(source) {}

  template <class... A>
  requires(sizeof...(A) > 0 && Which::template fits<A...> && Traceable<F, A...>) auto operator()(
      const A&... args) const ->
      typename grad_result<value, aux, result_t<F, A...>,
                           typename Which::template result<A...>::type>::type {
    using G = typename Which::template result<A...>::type;
    FlatCall<F, A...> call(f_, args...);
    GradLeaves out = grad_leaves(value ? "value_and_grad" : "grad", BodyRef(call),
                                 flatten_arguments(args...), which_.numbers(), aux, source_);
    G gradient = which_.template gradient<G>(out.gradients, args...);
    if constexpr (value) {
      return {call.rebuild(std::move(out.outs)), std::move(gradient)};
    } else if constexpr (aux) {
      return {std::move(gradient), call.rebuild(std::move(out.outs)).second};
    } else {
      return gradient;
    }
  }
  template <class... A>
  requires(sizeof...(A) == 0 || !Which::template fits<A...> || !Traceable<F, A...>) auto operator()(
      const A&...) const {
    static_assert(sizeof...(A) > 0, "grad needs an argument to differentiate with respect to");
    if constexpr (sizeof...(A) > 0 && !Which::template fits<A...>) {
      static_assert(Which::template fits<A...>,
                    "grad<n>: there are fewer arguments than that, or, with grad(f, n), arguments "
                    "of different types: say grad<n>(f) then");
    }
    return explain_untraceable<F, A...>();
  }

 private:
  mutable F f_;
  Which which_;
  SourceLine source_;
};

template <std::size_t n, bool list>
Argnums<n, list> argnums(const int* numbers) {
  Argnums<n, list> out;
  for (std::size_t k = 0; k < n; ++k) out.of[k] = numbers[k];
  return out;
}

template <bool value, bool aux, class Which, class F>
Grad<value, aux, std::decay_t<F>, Which> make_grad(F&& f, Which which, SourceLine source) {
  return {std::forward<F>(f), which, source};
}

}  // namespace detail

#define SHMAP_GRAD(name, value)                                                                    \
  template <class F>                                                                               \
  auto name(F&& f, SourceLine source = SourceLine::current()) {                                    \
    return detail::make_grad<value, false>(std::forward<F>(f), detail::StaticArgnums<0>(),         \
                                           source);                                                \
  }                                                                                                \
  template <class F>                                                                               \
  auto name(F&& f, has_aux_t, SourceLine source = SourceLine::current()) {                         \
    return detail::make_grad<value, true>(std::forward<F>(f), detail::StaticArgnums<0>(), source); \
  }                                                                                                \
  template <int I0, int... Arg, class F>                                                           \
  auto name(F&& f, SourceLine source = SourceLine::current()) {                                    \
    return detail::make_grad<value, false>(std::forward<F>(f),                                     \
                                           detail::StaticArgnums<I0, Arg...>(), source);           \
  }                                                                                                \
  template <int I0, int... Arg, class F>                                                           \
  auto name(F&& f, has_aux_t, SourceLine source = SourceLine::current()) {                         \
    return detail::make_grad<value, true>(std::forward<F>(f), detail::StaticArgnums<I0, Arg...>(), \
                                          source);                                                 \
  }                                                                                                \
  /* A template parameter for the int, so that {0} matches the list only. */                       \
  template <class F, std::integral Arg>                                                            \
  auto name(F&& f, Arg argnum, SourceLine source = SourceLine::current()) {                        \
    const int number = static_cast<int>(argnum);                                                   \
    return detail::make_grad<value, false>(std::forward<F>(f), detail::argnums<1, false>(&number), \
                                           source);                                                \
  }                                                                                                \
  template <class F, std::size_t n>                                                                \
  auto name(F&& f, const int(&argnums)[n], SourceLine source = SourceLine::current()) {            \
    return detail::make_grad<value, false>(std::forward<F>(f), detail::argnums<n, true>(argnums),  \
                                           source);                                                \
  }
SHMAP_GRAD(grad, false)
SHMAP_GRAD(value_and_grad, true)
#undef SHMAP_GRAD

}  // namespace shmap
