// checkpoint: in the backward pass the function is computed again, instead of storing its
// intermediate values as residuals in the forward pass (jax.checkpoint; rematerialisation). Only
// the function's inputs are stored. The results of collectives are not stored, so the backward pass
// communicates again.
//
// A call that is neither differentiated nor traced simply calls the function. Any other call traces
// the function, also under an eager grad, and code in the function that reads a value (item, a host
// `if`) gets a TypeError.
#pragma once
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/flat_call.h"

namespace shmap {

namespace detail {

std::vector<Array> checkpoint_leaves(BodyRef f, FlatTree arguments, SourceLine source);

template <class F>
class Checkpointed {
 public:
  Checkpointed(F f, SourceLine source) : f_(std::move(f)), source_(source) {}

  template <class... A>
  requires Traceable<F, A...> result_t<F, A...>
  operator()(const A&... args) const {
    FlatCall<F, A...> call(f_, args...);
    return call.rebuild(checkpoint_leaves(BodyRef(call), flatten_arguments(args...), source_));
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

template <class F>
detail::Checkpointed<std::decay_t<F>> checkpoint(F&& f, SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), source};
}

}  // namespace shmap
