// vmap: turns a function of one example into a function of a batch of examples (jax.vmap). The
// function is called once, with arrays whose shapes are those of one example, without the batch
// dim. Each operation inside runs on the whole batch, so that vmap gives the values of a loop over
// the examples, with one matrix product where the loop computes many matrix-vector products.
//
// In an eager call the operations run at once. The host cannot read a batched value as one value
// (item and a host `if` throw TypeError), and debug::print writes one line per example. vmap
// composes with vmap, jit, make_jaxpr, shard_map bodies and derivatives in any order.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "shmap/axes.h"
#include "shmap/flat_call.h"

namespace shmap {

// Which dim of each array is the batch dim: an int (a negative one counts from the end), `none`
// (the array has no batch dim: all examples share it), or a list of these with one entry per
// argument or, inside an argument, one entry per child of the tree (elements of a container, fields
// of a struct, values of a map in the order of their keys). An entry holds for all arrays of the
// subtree in its position.
class InAxes {
 public:
  enum Kind : std::uint8_t { axis, absent, list };
  InAxes(int dim) : axis_(dim) {}
  InAxes(none_t) : kind_(absent) {}
  InAxes(std::initializer_list<InAxes> entries) : kind_(list), entries_(entries) {}
  Kind kind() const { return kind_; }
  int dim() const { return axis_; }  // where kind() is axis
  std::size_t size() const { return entries_.size(); }
  const InAxes& operator[](std::size_t i) const { return entries_[i]; }

 private:
  Kind kind_ = axis;
  int axis_ = 0;
  std::vector<InAxes> entries_;
};
std::string to_string(const InAxes& axes);  // "{0, none}"

namespace detail {

struct VmapInfo {
  InAxes in_axes, out_axes;
  SourceLine source;
};

// `arguments` has one child per argument. Returns the result's leaves.
std::vector<Array> call_vmap(const VmapInfo& info, FlatTree arguments, BodyRef body);

template <class F>
class Vmapped {
 public:
  Vmapped(F f, VmapInfo info) : f_(std::move(f)), info_(std::move(info)) {}

  template <class... A>
  requires Traceable<F, A...> result_t<F, A...>
  operator()(A&&... args) const {
    FlatCall<F, std::decay_t<A>...> call(f_, args...);
    FlatTree flat = flatten_arguments(std::forward<A>(args)...);
    return call.rebuild(call_vmap(info_, std::move(flat), BodyRef(call)));
  }
  template <class... A>
  requires(!Traceable<F, A...>) auto operator()(A&&...) const {
    return explain_untraceable<F, std::decay_t<A>...>();
  }

 private:
  mutable F f_;
  VmapInfo info_;
};

}  // namespace detail

// in_axes has the batch dims of the arguments. All batch dims must have the same extent, and at
// least one argument must have a batch dim. out_axes has the batch dims of the results, in the
// structure of f's result. A result that is the same for all examples is repeated along its batch
// dim. With `none` in out_axes the result is returned without a batch dim; ValueError where such a
// result differs between examples. ValueErrors name the argument, its type and its axis.
template <class F>
detail::Vmapped<std::decay_t<F>> vmap(F&& f, InAxes in_axes = 0, InAxes out_axes = 0,
                                      SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), {std::move(in_axes), std::move(out_axes), source}};
}
// vmap of an overloaded operation by its name alone, with one array as argument: vmap(sum),
// vmap(max). For other arguments write a lambda.
inline detail::Vmapped<Array (*)(Operand)> vmap(detail::NamedOp op, InAxes in_axes = 0,
                                                InAxes out_axes = 0,
                                                SourceLine source = SourceLine::current()) {
  return {op.f, {std::move(in_axes), std::move(out_axes), source}};
}

}  // namespace shmap
