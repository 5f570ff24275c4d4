// Loops and branches: fori_loop, while_loop, scan, cond, switch_ (as in jax.lax).
//
// Called eagerly, also in the body of a shard_map, loops and branches run operation by operation:
// the user's function is called once per trip, on values that can be printed, and the host waits
// for the predicate, loop bound or branch index that decides how the program goes on. While a
// program is traced (make_jaxpr, jit), each loop or branch becomes one equation that contains
// programs, and the user's function is called only to trace it, more than once where the types of a
// carry are known only after the first trace.
//
// Carries are trees. The body must return a carry of the structure, dtypes and shapes of the carry
// that it was given; a host scalar in `init` takes the dtype that the body returns for it.
// TypeErrors name the leaf ("carry[1]"), both types and the cast to write.
//
// In a shard_map body, a carry varies over all mesh axes over which its init or the body's result
// varies. The result of cond and switch_ varies over all mesh axes over which the result of any
// branch varies. Both also vary over the mesh axes over which the predicate, branch index or trip
// count varies. Casts are inserted (with auto_pbroadcast = false a missing cast is a TypeError that
// names it). Where the predicate varies, each device gets the result of its own branch, or the
// carry of its own last trip; a collective over an axis over which the predicate varies is a
// CollectiveError. In an eager call, a branch or body that no device takes is not called, so its
// types and variance are not checked.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/array.h"
#include "shmap/flat_call.h"
#include "shmap/tree.h"

namespace shmap {

// length is the number of trips, which must be given where xs is `none`; -1 stands for extent 0 of
// the leaves of xs. With reverse, the scan goes from the last x to the first; each y is still
// stored at the index of its x.
struct ScanOptions {
  std::int64_t length = -1;
  bool reverse = false;
};

namespace detail {

// The functions below, with lists of leaves in place of trees. The body of a loop takes the leaves
// of the carry and returns the leaves of the new carry. The body of a fori_loop takes the index
// before these leaves. The body of a scan takes the leaves of x after the leaves of the carry, and
// its result is a list of two trees, the carry and y.
std::vector<Array> fori_loop_leaves(Array lo, Array hi, BodyRef body, FlatTree init,
                                    SourceLine source);
std::vector<Array> while_loop_leaves(BodyRef test, BodyRef body, FlatTree init, SourceLine source);
struct ScanLeaves {
  std::vector<Array> carry, ys;
};
ScanLeaves scan_leaves(BodyRef body, FlatTree init, FlatTree xs, ScanOptions options,
                       SourceLine source);
struct BranchLeaves {
  std::vector<Array> leaves;
  // the number of a branch that was called; the FlatCall of that branch has the structure of the
  // result
  std::size_t called;
};
BranchLeaves cond_leaves(Array pred, BodyRef on_true, BodyRef on_false, FlatTree arguments,
                         SourceLine source);
BranchLeaves switch_leaves(Array index, std::span<const BodyRef> branches, FlatTree arguments,
                           SourceLine source);

// The arguments that the functions below accept. For other arguments, overloads fail to compile
// with a sentence that says what is wanted.
template <class F, class C, class... A>
concept CarryBody = std::invocable<F&, A..., arg_t<C>> &&
    std::convertible_to<std::invoke_result_t<F&, A..., arg_t<C>>, arg_t<C>>;
template <class G, class C>
concept CarryTest =
    std::invocable<G&, arg_t<C>> && std::convertible_to<std::invoke_result_t<G&, arg_t<C>>, Array>;
template <class R>
concept Pair = requires {
  std::tuple_size<R>::value;
}
&&std::tuple_size_v<R> == 2;
template <class F, class C, class X>
concept ScanBody = std::invocable<F&, arg_t<C>, arg_t<X>> &&
    Pair<std::decay_t<std::invoke_result_t<F&, arg_t<C>, arg_t<X>>>>;
template <class T, class F, class... A>
concept Branches =
    Traceable<T, A...> && Traceable<F, A...> && std::same_as<result_t<T, A...>, result_t<F, A...>>;

}  // namespace detail

// Returns the carry after `carry = body(i, carry)` for i = lo, lo + 1, …, hi - 1, beginning with
// init. lo and hi are integer scalars, host or array; i is an i32 scalar, or i64 where a bound has
// a dtype of more than 32 bits.
template <class F, Tree C>
requires detail::CarryBody<F, C, Array> arg_t<C> fori_loop(Operand lo, Operand hi, F&& body,
                                                           C&& init) {
  using Init = std::decay_t<C>;
  auto trip = [&](Array i, arg_t<C> carry) -> arg_t<C> {
    return body(std::move(i), std::move(carry));
  };
  detail::FlatCall<decltype(trip), Array, Init> call(trip, lo.value, init);
  detail::FlatTree flat;
  detail::flatten(std::forward<C>(init), flat, flat.node);
  std::vector<Array> leaves = detail::fori_loop_leaves(
      lo.value, std::move(hi.value), detail::BodyRef(call), std::move(flat), lo.source);
  std::size_t next = 0;
  return detail::rebuild(static_cast<const Init&>(init), leaves, next);
}
template <class F, class C>
requires(!Tree<C> || !detail::CarryBody<F, C, Array>) auto fori_loop(Operand, Operand, F&&, C&&) {
  detail::explain_argument<std::decay_t<C>>();
  static_assert(!Tree<C> || detail::CarryBody<F, C, Array>,
                "the body of a fori_loop is called as body(i, carry), i an Array and the carry of "
                "init's type (a host scalar as Array), and returns the carry");
  return detail::Untraceable{};
}

// Returns the carry after `carry = body(carry)` repeated while test(carry), a bool scalar, is true,
// beginning with init.
template <class G, class F, Tree C>
requires detail::CarryTest<G, C> && detail::CarryBody<F, C> arg_t<C> while_loop(
    G&& test, F&& body, C&& init, SourceLine source = SourceLine::current()) {
  using Init = std::decay_t<C>;
  auto decide = [&](arg_t<C> carry) -> Array { return test(std::move(carry)); };
  auto trip = [&](arg_t<C> carry) -> arg_t<C> { return body(std::move(carry)); };
  detail::FlatCall<decltype(decide), Init> test_call(decide, init);
  detail::FlatCall<decltype(trip), Init> body_call(trip, init);
  detail::FlatTree flat;
  detail::flatten(std::forward<C>(init), flat, flat.node);
  std::vector<Array> leaves = detail::while_loop_leaves(
      detail::BodyRef(test_call), detail::BodyRef(body_call), std::move(flat), source);
  std::size_t next = 0;
  return detail::rebuild(static_cast<const Init&>(init), leaves, next);
}
template <class G, class F, class C>
requires(!Tree<C> || !detail::CarryTest<G, C> || !detail::CarryBody<F, C>) auto while_loop(G&&, F&&,
                                                                                           C&&) {
  detail::explain_argument<std::decay_t<C>>();
  if constexpr (Tree<C>) {
    static_assert(detail::CarryTest<G, C>,
                  "the test of a while_loop is called with the carry, of init's type (a host "
                  "scalar as Array), and returns a bool Array");
    static_assert(detail::CarryBody<F, C>,
                  "the body of a while_loop is called with the carry, of init's type (a host "
                  "scalar as Array), and returns it");
  }
  return detail::Untraceable{};
}

// Returns {carry, ys} after `{carry, y} = f(carry, x)` for each x of xs, beginning with init. The
// x's are slices of the leaves of xs along dim 0; the y's are stacked along a new dim 0.
template <class F, Tree C, Tree X>
requires detail::ScanBody<F, C, X> std::pair<
    arg_t<C>,
    arg_t<std::tuple_element_t<1, std::decay_t<std::invoke_result_t<F&, arg_t<C>, arg_t<X>>>>>>
scan(F&& f, C&& init, X&& xs, ScanOptions options = {}, SourceLine source = SourceLine::current()) {
  using Init = std::decay_t<C>;
  using Xs = std::decay_t<X>;
  using Result = std::decay_t<std::invoke_result_t<F&, arg_t<C>, arg_t<X>>>;
  using Y = std::tuple_element_t<1, Result>;
  static_assert(std::convertible_to<std::tuple_element_t<0, Result>, arg_t<C>>,
                "the function of a scan returns a pair of the carry, of init's type, and a y");
  auto trip = [&](arg_t<C> carry, arg_t<X> x) -> std::pair<arg_t<C>, Y> {
    Result result = f(std::move(carry), std::move(x));
    return {std::get<0>(std::move(result)), std::get<1>(std::move(result))};
  };
  detail::FlatCall<decltype(trip), Init, Xs> call(trip, init, xs);
  detail::FlatTree flat_init, flat_xs;
  detail::flatten(std::forward<C>(init), flat_init, flat_init.node);
  detail::flatten(std::forward<X>(xs), flat_xs, flat_xs.node);
  detail::ScanLeaves leaves = detail::scan_leaves(detail::BodyRef(call), std::move(flat_init),
                                                  std::move(flat_xs), options, source);
  std::size_t next = 0, next_y = 0;
  arg_t<C> carry = detail::rebuild(static_cast<const Init&>(init), leaves.carry, next);
  return {std::move(carry), detail::rebuild(call.like().second, leaves.ys, next_y)};
}
template <class F, class C, class X>
requires(!Tree<C> || !Tree<X> || !detail::ScanBody<F, C, X>) auto scan(F&&, C&&, X&&,
                                                                       ScanOptions = {}) {
  detail::explain_argument<std::decay_t<C>>();
  detail::explain_argument<std::decay_t<X>>();
  static_assert(!Tree<C> || !Tree<X> || detail::ScanBody<F, C, X>,
                "the function of a scan is called as f(carry, x): the carry of init's type (a host "
                "scalar as Array), x one item of xs, and none_t where xs is `none`; and it returns "
                "a pair of the carry and a y");
  // A pair, so that `auto [carry, ys] = scan(…)` is no second error.
  return std::pair<detail::Untraceable, detail::Untraceable>();
}

// Returns t(args…) where the bool scalar pred is true, otherwise f(args…).
template <class T, class F, class... A>
requires detail::Branches<T, F, A...> result_t<T, A...> cond(Operand pred, T&& t, F&& f,
                                                             const A&... args) {
  detail::FlatCall<std::remove_reference_t<T>, A...> on_true(t, args...);
  detail::FlatCall<std::remove_reference_t<F>, A...> on_false(f, args...);
  detail::BranchLeaves result = detail::cond_leaves(
      std::move(pred.value), detail::BodyRef(on_true), detail::BodyRef(on_false),
      detail::flatten_arguments(args...), pred.source);
  return result.called == 1 ? on_true.rebuild(std::move(result.leaves))
                            : on_false.rebuild(std::move(result.leaves));
}
template <class T, class F, class... A>
requires(!detail::Branches<T, F, A...>) auto cond(Operand, T&&, F&&, const A&...) {
  if constexpr (!Traceable<T, A...>) {
    return detail::explain_untraceable<T, A...>();
  } else if constexpr (!Traceable<F, A...>) {
    return detail::explain_untraceable<F, A...>();
  } else {
    static_assert(detail::Branches<T, F, A...>,
                  "the branches of a cond return values of one type: Array where one of them "
                  "returns a host scalar");
    return detail::Untraceable{};
  }
}

// Returns branches[index](args…); an index out of range is clamped to the nearest branch. This
// overload takes the branches in braces, {f0, f1}: each branch returns an Array, or an R where R is
// given.
template <class R = Array, class... A>
R switch_(Operand index, std::vector<std::function<R(arg_t<A>...)>> branches, const A&... args) {
  std::vector<detail::FlatCall<std::function<R(arg_t<A>...)>, A...>> calls;
  calls.reserve(branches.size());
  std::vector<detail::BodyRef> bodies;
  for (auto& branch : branches) bodies.emplace_back(calls.emplace_back(branch, args...));
  detail::BranchLeaves result = detail::switch_leaves(
      std::move(index.value), bodies, detail::flatten_arguments(args...), index.source);
  return calls[result.called].rebuild(std::move(result.leaves));
}

// switch_ with a tuple of branches, which may return any tree, all of one type.
template <class F0, class... F, class... A>
requires(Traceable<const F0, A...> &&
         (detail::Branches<const F0, const F, A...> &&
          ...)) result_t<const F0, A...> switch_(Operand index,
                                                 const std::tuple<F0, F...>& branches,
                                                 const A&... args) {
  return std::apply(
      [&](const F0& first, const F&... rest) {
        std::tuple<detail::FlatCall<const F0, A...>, detail::FlatCall<const F, A...>...> calls(
            detail::FlatCall<const F0, A...>(first, args...),
            detail::FlatCall<const F, A...>(rest, args...)...);
        return std::apply(
            [&](auto&... call) {
              const detail::BodyRef bodies[] = {detail::BodyRef(call)...};
              detail::BranchLeaves result = detail::switch_leaves(
                  std::move(index.value), bodies, detail::flatten_arguments(args...), index.source);
              std::optional<result_t<const F0, A...>> tree;
              std::size_t n = 0;
              ((n++ == result.called ? tree.emplace(call.rebuild(std::move(result.leaves))), 0 : 0),
               ...);
              return std::move(*tree);
            },
            calls);
      },
      branches);
}
template <class F0, class... F, class... A>
requires(!(Traceable<const F0, A...> && (detail::Branches<const F0, const F, A...> &&
                                         ...))) auto switch_(Operand, const std::tuple<F0, F...>&,
                                                             const A&...) {
  if constexpr (!Traceable<const F0, A...>) {
    return detail::explain_untraceable<const F0, A...>();
  } else {
    static_assert((detail::Branches<const F0, const F, A...> && ...),
                  "the branches of a switch_ can all be called with the arguments, and return "
                  "values of one type: Array where one of them returns a host scalar");
    return detail::Untraceable{};
  }
}

}  // namespace shmap
