// jit: traces a function once per list of argument types, and replays the program afterwards
// (jax.jit).
//
// The function is traced again when the types or shardings of the arguments, the structure of their
// trees or the values of their static members are new. Arrays that the function captures are read
// once, when the function is traced. The program is checked, simplified, fused and planned, and
// from the second call on replayed as captured graphs. Results stay valid after later calls. A
// jitted function keeps the programs that were called last, as many as SHMAP_JIT_CACHE says (256 by
// default). An argument passed as an rvalue is donated. A call does not wait for its results; it
// does wait for the predicates of loops and branches that the host decides.
//
// Code that reads a value while it is traced (item, to_vector, a host `if`) gets a TypeError that
// names the operation that computes the value, its line, and the line of this jit; printing with <<
// shows the value's type. An exception that the function throws propagates to the caller, and
// nothing of that trace is kept.
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

  // Copies the structure of the result, a FlatCall::Result, out of a FlatCall. The cache keeps the
  // copy together with the program.
  using LikeFn = std::shared_ptr<const void> (*)(const void* call);
  struct Call {
    const void* tag;  // one address per list of argument types
    BodyRef body;
    const void* flat_call;
    LikeFn like;
    SourceLine source;
    // The mesh to split the program over (shmap/partitioned_jit.h). Null: the mesh of the arguments
    // and of the program's constraints.
    const MeshImpl* mesh = nullptr;
  };
  struct Result {
    std::vector<Array> leaves;
    std::shared_ptr<const void> like;
  };
  Result call(const Call& call, FlatTree arguments);
  // The plan of the program that ran last, as text: its steps, streams, events, slots and bytes.
  std::string plan_text() const;

 private:
  std::unique_ptr<JitCacheImpl> impl_;
};

// How jit(f) calls its cache. jit over a mesh has PartitionInfo in this place.
struct WholeProgram {
  SourceLine source;
  JitCache::Result call(JitCache& cache, const JitCache::Call& call, FlatTree arguments) const {
    return cache.call(call, std::move(arguments));
  }
};

template <class F, class How = WholeProgram>
class Jitted {
 public:
  Jitted(F f, How how) : f_(std::move(f)), how_(std::move(how)), cache_(cache_for<JitCache, F>()) {}

  template <class... A>
  requires Traceable<F, A...> result_t<F, A...>
  operator()(A&&... args) const {
    using Flat = FlatCall<F, std::decay_t<A>...>;
    Flat call(f_, args...);
    const JitCache::LikeFn like = [](const void* made) -> std::shared_ptr<const void> {
      return std::make_shared<typename Flat::Result>(static_cast<const Flat*>(made)->like());
    };
    JitCache::Result result =
        how_.call(*cache_, {&type_tag<arg_t<A>...>, BodyRef(call), &call, like, how_.source},
                  flatten_arguments(std::forward<A>(args)...));
    std::size_t next = 0;
    return rebuild(*static_cast<const typename Flat::Result*>(result.like.get()), result.leaves,
                   next);
  }
  template <class... A>
  requires(!Traceable<F, A...>) auto operator()(A&&...) const {
    return explain_untraceable<F, std::decay_t<A>...>();
  }

  // The plan of the latest call, as text for people to read. Where there is no plan, the text says
  // so.
  std::string plan_text() const { return cache_->plan_text(); }

 private:
  mutable F f_;
  How how_;
  std::shared_ptr<JitCache> cache_;
};

Array constrain_sharding(const Array& x, const NamedSharding& sharding, SourceLine source);

}  // namespace detail

template <class F>
detail::Jitted<std::decay_t<F>> jit(F&& f, SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f), {source}};
}
// jit of an overloaded operation by its name alone, with one array as argument: jit(sum).
inline detail::Jitted<Array (*)(Operand)> jit(detail::NamedOp op,
                                              SourceLine source = SourceLine::current()) {
  return {op.f, {source}};
}

// x with the given sharding: under jit, a constraint on the partitioning of the program around it
// (jax.lax.with_sharding_constraint). Outside of jit the arrays are moved at once. ValueError in
// the body of a shard_map, where arrays are blocks.
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
