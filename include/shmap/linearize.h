// linearize, vjp and linear_transpose: a function's derivative as a linear map, and the transpose
// of that map (jax.linearize, jax.vjp, jax.linear_transpose).
//
// linearize and vjp call the function once. In an eager call the function's operations run eagerly,
// and printing, a host `if` and item() see the primal values. Only the linear part is recorded as a
// program, together with the primal values that the linear part needs (residuals). The returned
// linear maps may be copied and called any number of times, also after the function has returned;
// copies share the program and its residuals. A call of a linear map may itself be traced, batched
// and differentiated.
//
// Tangents are trees of the structure of the arguments, cotangents are trees of the structure of
// the result. A leaf of either has the shape and dtype of its primal value (a host scalar is
// converted to that dtype). Integers and bools have no derivative: their tangents and cotangents
// are zeros of their dtype, and values given for them are ignored. In a shard_map body a tangent or
// cotangent that varies over fewer axes than its primal value is cast; one that varies over more
// axes is an error that says where a psum is missing. TypeErrors name the leaf, both types and the
// remedy.
#pragma once
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/flat_call.h"

namespace shmap {

namespace detail {

struct LinearState;
// A linear program with its residuals; copies share both.
class LinearFunction {
 public:
  explicit LinearFunction(std::shared_ptr<const LinearState> state) : state_(std::move(state)) {}
  // From the arguments' tangents (one child per argument) to the results' tangents.
  std::vector<Array> apply(const FlatTree& tangents, SourceLine source) const;
  // From the result's cotangents to the arguments' cotangents.
  std::vector<Array> transpose(const FlatTree& cotangents, SourceLine source) const;

 private:
  std::shared_ptr<const LinearState> state_;
};
struct LinearizedLeaves {
  std::vector<Array> outs;
  LinearFunction linear;
};
// what: "linearize" or "vjp", for error messages.
LinearizedLeaves linearize_leaves(const char* what, BodyRef f, FlatTree arguments,
                                  SourceLine source);
LinearFunction linear_transpose_leaves(BodyRef f, const FlatTree& arguments, SourceLine source);

}  // namespace detail

// What linearize returns: a map from the arguments' tangents to the result's tangent.
template <class R, class... A>
class LinearMap {
 public:
  LinearMap(detail::LinearFunction linear, R result)
      : linear_(std::move(linear)), result_(std::move(result)) {}
  R operator()(const A&... tangents, SourceLine source = SourceLine::current()) const {
    std::vector<Array> leaves = linear_.apply(detail::flatten_arguments(tangents...), source);
    std::size_t next = 0;
    return detail::rebuild(result_, leaves, next);
  }

 private:
  detail::LinearFunction linear_;
  R result_;  // only its structure; the leaves are empty
};

// What vjp and linear_transpose return: a map from the result's cotangent to a tuple of the
// arguments' cotangents.
template <class R, class... A>
class Pullback {
 public:
  Pullback(detail::LinearFunction linear, A... arguments)
      : linear_(std::move(linear)), arguments_(std::move(arguments)...) {}
  std::tuple<A...> operator()(const R& cotangent, SourceLine source = SourceLine::current()) const {
    detail::FlatTree flat;
    detail::flatten(cotangent, flat, flat.node);
    std::vector<Array> leaves = linear_.transpose(flat, source);
    std::size_t next = 0;
    return detail::rebuild(arguments_, leaves, next);
  }

 private:
  detail::LinearFunction linear_;
  std::tuple<A...> arguments_;  // only their structure; the leaves are empty
};

// Returns {f(args…), f_lin}, where f_lin(tangents…) is the derivative of f at args along the
// tangents.
template <class F, class... A>
requires Traceable<F, A...>
auto linearize(F&& f, const A&... args)
    -> std::pair<result_t<F, A...>, LinearMap<result_t<F, A...>, arg_t<A>...>> {
  detail::FlatCall<std::remove_reference_t<F>, A...> call(f, args...);
  detail::LinearizedLeaves out = detail::linearize_leaves("linearize", detail::BodyRef(call),
                                                          detail::flatten_arguments(args...), {});
  return {call.rebuild(std::move(out.outs)),
          {std::move(out.linear), detail::structure_of(call.like())}};
}

template <class F, class... A>
requires(!Traceable<F, A...>) auto linearize(F&&, const A&...) {
  return detail::explain_untraceable<F, A...>();
}

// Returns {f(args…), pullback}, where pullback(cotangent) is the tuple of the arguments'
// cotangents.
template <class F, class... A>
requires Traceable<F, A...>
auto vjp(F&& f, const A&... args)
    -> std::pair<result_t<F, A...>, Pullback<result_t<F, A...>, arg_t<A>...>> {
  detail::FlatCall<std::remove_reference_t<F>, A...> call(f, args...);
  detail::LinearizedLeaves out = detail::linearize_leaves("vjp", detail::BodyRef(call),
                                                          detail::flatten_arguments(args...), {});
  return {call.rebuild(std::move(out.outs)),
          {std::move(out.linear), detail::structure_of(args)...}};
}

template <class F, class... A>
requires(!Traceable<F, A...>) auto vjp(F&&, const A&...) {
  return detail::explain_untraceable<F, A...>();
}

// The transpose of a function that is linear in its arguments. Only the types of `args` matter
// (ShapedArrays are accepted). A call of the returned Pullback throws TypeError where an operation
// of f is not linear.
template <class F, class... A>
requires Traceable<F, A...> Pullback<result_t<F, A...>, arg_t<A>...> linear_transpose(
    F&& f, const A&... args) {
  detail::FlatCall<std::remove_reference_t<F>, A...> call(f, args...);
  detail::LinearFunction linear = detail::linear_transpose_leaves(
      detail::BodyRef(call), detail::flatten_arguments(args...), {});
  return {std::move(linear), detail::structure_of(args)...};
}
template <class F, class... A>
requires(!Traceable<F, A...>) auto linear_transpose(F&&, const A&...) {
  return detail::explain_untraceable<F, A...>();
}

}  // namespace shmap
