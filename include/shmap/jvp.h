// jvp: a function's value and its derivative along a direction (jax.jvp). The function is called
// once. In an eager call its operations run eagerly, and printing, a host `if` and item() see the
// primal values.
//
// Tangents are trees of the structure of the primals. A leaf of a tangent has the shape and dtype
// of its primal (a host scalar is converted to that dtype); `none` in place of a leaf or subtree is
// a tangent of zeros. Integers and bools have no derivative: their tangents have their dtype, the
// values of tangents given for them are ignored, and the tangents returned for them are zeros. In a
// shard_map body a tangent that varies over fewer axes than its primal is cast. TypeErrors name the
// leaf ("tangents[1]['w']"), both types and the remedy.
#pragma once
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/flat_call.h"

namespace shmap {

namespace detail {

struct DualLeaves {
  std::vector<Array> primals, tangents;  // of the results
};
DualLeaves jvp_leaves(BodyRef f, FlatTree primals, const FlatTree& tangents, SourceLine source);

}  // namespace detail

// {f(primals…), the derivative of f at the primals along the tangents}.
template <class F, class... A, class... D>
requires Traceable<F, A...> &&(sizeof...(A) == sizeof...(D) && (Tree<D> && ...))
    std::pair<result_t<F, A...>, result_t<F, A...>> jvp(F&& f, const std::tuple<A...>& primals,
                                                        const std::tuple<D...>& tangents,
                                                        SourceLine source = SourceLine::current()) {
  return std::apply(
      [&](const A&... args) -> std::pair<result_t<F, A...>, result_t<F, A...>> {
        detail::FlatCall<std::remove_reference_t<F>, A...> call(f, args...);
        detail::FlatTree given;
        detail::flatten(tangents, given, given.node);
        detail::DualLeaves out = detail::jvp_leaves(
            detail::BodyRef(call), detail::flatten_arguments(args...), given, source);
        return {call.rebuild(std::move(out.primals)), call.rebuild(std::move(out.tangents))};
      },
      primals);
}
template <class F, class... A, class... D>
requires(!(Traceable<F, A...> && sizeof...(A) == sizeof...(D) &&
           (Tree<D> && ...))) auto jvp(F&&, const std::tuple<A...>&, const std::tuple<D...>&,
                                       SourceLine = {}) {
  static_assert(sizeof...(A) == sizeof...(D), "jvp wants one tangent for each primal");
  (detail::explain_argument<D>(), ...);
  return detail::explain_untraceable<F, A...>();
}

}  // namespace shmap
