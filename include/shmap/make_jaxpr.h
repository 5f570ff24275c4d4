// make_jaxpr: traces a function to a program that can be printed, checked, evaluated and costed
// (jax.make_jaxpr; autodidax, part 2).
#pragma once
#include <memory>
#include <type_traits>
#include <utility>

#include "shmap/flat_call.h"
#include "shmap/jaxpr.h"

namespace shmap {

struct MakeJaxprOptions {
  // true: every operation becomes an equation. false: operations whose operands are all constants
  // run while tracing, and their results become constants of the program.
  bool omnistaging = true;
};

namespace detail {

struct JaxprCacheImpl;
class JaxprCache {
 public:
  JaxprCache();
  ~JaxprCache();
  JaxprCache(const JaxprCache&) = delete;
  JaxprCache& operator=(const JaxprCache&) = delete;
  // The program for arguments of these types and this structure, traced at the first call.
  ClosedJaxpr get(const void* tag, const FlatTree& arguments, BodyRef body,
                  const MakeJaxprOptions& options, SourceLine source);

 private:
  std::unique_ptr<JaxprCacheImpl> impl_;
};

template <class F>
class JaxprMaker {
 public:
  JaxprMaker(F f, MakeJaxprOptions options, SourceLine source)
      : f_(std::move(f)), options_(options), source_(source), cache_(cache_for<JaxprCache, F>()) {}

  // args are arrays, of which only the types matter, or ShapedArrays. The program is cached by the
  // types and static members of args: a second call with the same ones returns the same program
  // object. An exception that f throws propagates to the caller, and then nothing is cached.
  template <class... A>
  requires Traceable<F, A...> ClosedJaxpr operator()(const A&... args) const {
    FlatCall<F, A...> call(f_, args...);
    return cache_->get(&type_tag<arg_t<A>...>, flatten_arguments(args...), BodyRef(call), options_,
                       source_);
  }
  template <class... A>
  requires(!Traceable<F, A...>) auto operator()(const A&...) const {
    return explain_untraceable<F, A...>();
  }

 private:
  mutable F f_;
  MakeJaxprOptions options_;
  SourceLine source_;
  std::shared_ptr<JaxprCache> cache_;
};

}  // namespace detail

template <class F>
detail::JaxprMaker<std::decay_t<F>> make_jaxpr(F&& f, MakeJaxprOptions options = {},
                                               SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), options, source};
}

}  // namespace shmap
