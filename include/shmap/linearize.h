// linearize, vjp and linear_transpose: a function as a linear map, forwards and backwards
// (jax.linearize, jax.vjp, jax.linear_transpose).
//
// linearize and vjp run the function once, eagerly where it is eager: printing, host `if` and
// item() see the primal values. Only the linear part is staged, with the values that it needs
// (residuals). What they return may be copied and called any number of times, also after the
// function returned; copies share it. It is itself traced, mapped and differentiated where it is
// called.
//
// Tangents and cotangents are trees of the structure of the arguments and of the result; a leaf has
// its value's shape and dtype (a host scalar is converted to the dtype). Integers and bools have no
// derivative: zeros of their dtype stand for it, and what is given for them is not looked at. In a
// shard_map body, what varies less than its value is cast; what varies more is an error that says
// where a psum is missing. TypeErrors name the leaf, both types and the remedy.
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
// A linear program with its residuals; copies share them.
class LinearFunction {
 public:
  explicit LinearFunction(std::shared_ptr<const LinearState> state) : state_(std::move(state)) {}
  // From a list of the arguments' tangents to the results'.
  std::vector<Array> apply(const FlatTree& tangents, SourceLine source) const;
  // From the result's cotangents to the arguments'.
  std::vector<Array> transpose(const FlatTree& cotangents, SourceLine source) const;

 private:
  std::shared_ptr<const LinearState> state_;
};
struct LinearizedLeaves {
  std::vector<Array> outs;
  LinearFunction linear;
};
// what: "linearize" or "vjp", for errors.
LinearizedLeaves linearize_leaves(const char* what, BodyRef f, FlatTree arguments,
                                  SourceLine source);
LinearFunction linear_transpose_leaves(BodyRef f, const FlatTree& arguments, SourceLine source);

}  // namespace detail

// What linearize gives: from tangents of the arguments to that of the result.
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
  R result_;  // its structure
};

// What vjp and linear_transpose give: from a cotangent of the result to a tuple of the arguments'.
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
  std::tuple<A...> arguments_;  // their structure
};

// {f(args…), f_lin}: f_lin(tangents…) is the derivative of f at args along them.
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

// {f(args…), pullback}: pullback(cotangent) is the tuple of the arguments' cotangents.
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

// The transpose of a function that is linear in its arguments, of which only the types count
// (ShapedArrays will do). TypeError where it is called and an op turns out not to be linear.
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
