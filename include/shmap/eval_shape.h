// Types without values: eval_shape computes the types of a function's results, and abstract_array
// makes an array that has a type and no value.
#pragma once
#include <utility>
#include <vector>

#include "shmap/flat_call.h"
#include "shmap/make_jaxpr.h"

namespace shmap {

// An array of the given type without a value (as jax.ShapeDtypeStruct), also as a member of a
// struct. It can be an argument of make_jaxpr, eval_shape and load_checkpoint, which use only the
// types of their arguments. shape(), dtype() and type() of an abstract array work; operations on it
// and reading its elements throw TypeError.
Array abstract_array(const ShapedArray& type);

namespace detail {

template <class F>
class ShapeEvaluator {
 public:
  ShapeEvaluator(F f, SourceLine source) : f_(std::move(f)), source_(source) {}

  template <class... A>
  requires Traceable<F, A...> result_t<F, A...>
  operator()(const A&... args) const {
    FlatCall<F, A...> call(f_, args...);
    JaxprCache cache;
    const ClosedJaxpr jaxpr =
        cache.get(&type_tag<arg_t<A>...>, flatten_arguments(args...), BodyRef(call), {}, source_);
    std::vector<Array> leaves;
    for (const ShapedArray& type : jaxpr.out_types()) leaves.push_back(abstract_array(type));
    return call.rebuild(std::move(leaves));
  }
  template <class... A>
  requires(!Traceable<F, A...>) auto operator()(const A&...) const {
    return explain_untraceable<F, A...>();
  }

 private:
  mutable F f_;
  SourceLine source_;
};

}  // namespace detail

// eval_shape(f)(args…) is a tree of the structure of f(args…) with abstract arrays as leaves. f is
// traced, and nothing is computed (jax.eval_shape). The leaves of args may be arrays, abstract
// arrays or ShapedArrays.
template <class F>
detail::ShapeEvaluator<std::decay_t<F>> eval_shape(F&& f,
                                                   SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), source};
}

}  // namespace shmap
