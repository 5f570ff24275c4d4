// vmap: a function of one example, applied to a batch of them (jax.vmap). The function is called
// once, and sees one example: shapes without the batch dim. Each op runs on the whole batch; so a
// loop over the examples and vmap give the same values, and vmap makes one product of matrices
// where the loop makes many products of a matrix and a vector.
//
// Called eagerly, ops run at once. A batched value has no single value that the host could read
// (item, host `if`: TypeError), and debug::print writes a line for each example. vmap nests, and
// goes with jit, make_jaxpr, shard_map bodies and derivatives in any order.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "shmap/axes.h"
#include "shmap/flat_call.h"

namespace shmap {

// Which dim of each array is the batch dim: an int (a negative one counts from the end), none (the
// array is the same for the whole batch), or a list of these: an entry an argument, or one for each
// part of a tree, whose parts are the elements of containers, the fields of structs, and the values
// of maps in the order of their keys. An entry stands for all arrays of its part.
class InAxes {
 public:
  enum Kind : std::uint8_t { axis, absent, list };
  InAxes(int dim) : axis_(dim) {}
  InAxes(none_t) : kind_(absent) {}
  InAxes(std::initializer_list<InAxes> entries) : kind_(list), entries_(entries) {}
  Kind kind() const { return kind_; }
  int dim() const { return axis_; }  // of kind axis
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

// `arguments` has one child an argument. Returns the result's leaves.
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

// in_axes: the batch dims of the arguments, which all have one size; at least one argument has one.
// out_axes: where the results' batch dims go; it mirrors what f returns. none: the result has no
// batch dim, and is the same for the whole batch (a ValueError where it is not). A result that is
// the same for the whole batch is repeated where its out_axes is an int. ValueErrors name the
// argument, its type and its axis.
template <class F>
detail::Vmapped<std::decay_t<F>> vmap(F&& f, InAxes in_axes = 0, InAxes out_axes = 0,
                                      SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), {std::move(in_axes), std::move(out_axes), source}};
}
// An operation of one array by its name alone, also where there are others of that name with
// further arguments: vmap(sum), vmap(max). These are given in a lambda.
inline detail::Vmapped<Array (*)(Operand)> vmap(Array (*f)(Operand), InAxes in_axes = 0,
                                                InAxes out_axes = 0,
                                                SourceLine source = SourceLine::current()) {
  return {f, {std::move(in_axes), std::move(out_axes), source}};
}

}  // namespace shmap
