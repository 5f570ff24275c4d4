// jit: a function traced once for each list of argument types, and replayed from then on (jax.jit).
//
// Traced once per the types and shardings of the arguments, the structure of their trees and their
// static members; captured arrays are read once, when traced. The program is checked, simplified,
// fused, planned and, from the second call on, replayed as captured graphs. Results survive later
// calls. A function keeps SHMAP_JIT_CACHE programs (256), those that were called last. An argument
// passed as an rvalue is donated.
//
// A value asked for while tracing (item, to_vector, host `if`) is a TypeError that names the
// operation which would give the value, its line, and the line of this jit; printing with << gives
// the value's type. What the function throws comes out, and nothing is kept of that trace.
#pragma once
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "shmap/flat_call.h"
#include "shmap/partition_spec.h"

namespace shmap {

namespace detail {

class JitCacheImpl;
class JitCache {
 public:
  JitCache();
  ~JitCache();
  JitCache(const JitCache&) = delete;
  JitCache& operator=(const JitCache&) = delete;

  // The structure of a result, kept with its program: a FlatCall's Result.
  using LikeFn = std::shared_ptr<const void> (*)(const void* call);
  struct Call {
    const void* tag;  // of the argument types
    BodyRef body;
    const void* flat_call;
    LikeFn like;
    SourceLine source;
  };
  struct Result {
    std::vector<Array> leaves;
    std::shared_ptr<const void> like;
  };
  Result call(const Call& call, FlatTree arguments);
  // The plan of the latest program that ran here: its steps, streams, events, slots and bytes.
  std::string plan_text() const;

 private:
  std::unique_ptr<JitCacheImpl> impl_;
};

template <class F>
class Jitted {
 public:
  Jitted(F f, SourceLine source)
      : f_(std::move(f)), source_(source), cache_(cache_for<JitCache, F>()) {}

  template <class... A>
  requires Traceable<F, A...> result_t<F, A...>
  operator()(A&&... args) const {
    using Flat = FlatCall<F, std::decay_t<A>...>;
    Flat call(f_, args...);
    const JitCache::LikeFn like = [](const void* made) -> std::shared_ptr<const void> {
      return std::make_shared<typename Flat::Result>(static_cast<const Flat*>(made)->like());
    };
    JitCache::Result result =
        cache_->call({&type_tag<arg_t<A>...>, BodyRef(call), &call, like, source_},
                     flatten_arguments(std::forward<A>(args)...));
    std::size_t next = 0;
    return rebuild(*static_cast<const typename Flat::Result*>(result.like.get()), result.leaves,
                   next);
  }
  template <class... A>
  requires(!Traceable<F, A...>) auto operator()(A&&...) const {
    return explain_untraceable<F, std::decay_t<A>...>();
  }

  // What was planned for the latest call: for looking at.
  std::string plan_text() const { return cache_->plan_text(); }

 private:
  mutable F f_;
  SourceLine source_;
  std::shared_ptr<JitCache> cache_;
};

Array constrain_sharding(const Array& x, const NamedSharding& sharding, SourceLine source);

}  // namespace detail

template <class F>
detail::Jitted<std::decay_t<F>> jit(F&& f, SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), source};
}
// An operation of one array by its name alone, as vmap has it: jit(sum).
inline detail::Jitted<Array (*)(Operand)> jit(Array (*f)(Operand),
                                              SourceLine source = SourceLine::current()) {
  return {f, source};
}

// The same values under a sharding: what a partitioner of the program around must honour
// (jax.lax.with_sharding_constraint). Outside of jit the arrays are moved at once.
template <ArrayTree T>
T with_sharding_constraint(const T& x, NamedSharding sharding,
                           SourceLine source = SourceLine::current()) {
  detail::FlatTree flat;
  detail::flatten(x, flat, flat.node);
  for (Array& leaf : flat.leaves) leaf = detail::constrain_sharding(leaf, sharding, source);
  std::size_t next = 0;
  return detail::rebuild(x, flat.leaves, next);
}

}  // namespace shmap
