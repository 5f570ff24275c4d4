// shard_map: per-device code with explicit collectives over a named mesh (JEP 14273,
// jax.shard_map). The body sees one block per device, with the block's own shape. In an eager call,
// the body runs once per process for all local devices, and each primitive runs when it is called:
// a host `if` works on values that are invariant over all mesh axes, and printing works in the
// middle of the body.
//
// Inputs whose sharding is not that of their in_spec are moved to it; other inputs are not copied.
// Outputs never move: the body's blocks become the shards of the result. The mesh axes over which a
// result of the body varies must be among those that its out_spec mentions; otherwise ValueError.
#pragma once
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "shmap/flat_call.h"
#include "shmap/mesh.h"
#include "shmap/partition_spec.h"

namespace shmap {

struct ShardMapOptions {
  bool check_vma = true;  // ValueError for a result that varies over an axis that its spec omits
  // Cast operands of different variance to the union of their variances; if false, an operation on
  // such operands is a TypeError.
  bool auto_pbroadcast = true;
  // The mesh axes that f is mapped over, which specs and collectives may name; empty: all, or
  // inside of another body all that are automatic there. Along the other axes, the automatic ones,
  // f sees whole arrays. These stay split as they are, and operations on them run as on sharded
  // arrays outside of a body; a shard_map over these axes may be called inside of f.
  Axes axis_names = {};
};

namespace detail {

// The arguments of a call of shard_map, checked once.
struct ShardMapInfo {
  ShardMapInfo(AnyMesh mesh, Specs in_specs, Specs out_specs, ShardMapOptions options,
               SourceLine source);
  AnyMesh mesh;
  Specs in_specs, out_specs;
  ShardMapOptions options;
  std::uint32_t axes = 0;  // options.axis_names, as a mask over the axes of the mesh
  SourceLine source;
};

// `arguments` has one child per argument. `called` is the line of the call, which error messages
// show unless the line is in a header of the library or of C++ (because jit or std::invoke made the
// call). Returns the result's leaves as global arrays.
std::vector<Array> call_shard_map(const ShardMapInfo& info, SourceLine called, FlatTree arguments,
                                  BodyRef body);

template <class F>
class ShardMapped {
 public:
  ShardMapped(F f, ShardMapInfo info) : f_(std::move(f)), info_(std::move(info)) {}

  // One overload per number of arguments, because no default argument (the caller's line) can
  // follow a parameter pack. `At` is tested before Traceable, so that a call with more arguments
  // rejects these overloads without instantiating Traceable.
  template <class At = SourceLine, class G = F>
  requires(std::same_as<At, SourceLine>&& Traceable<G>) auto operator()(
      At called = SourceLine::current()) const {
    return call_at(called);
  }
  template <class A, class At = SourceLine>
  requires(std::same_as<At, SourceLine>&& Traceable<F, A>) auto operator()(
      A&& a, At called = SourceLine::current()) const {
    return call_at(called, std::forward<A>(a));
  }
  template <class A, class B, class At = SourceLine>
  requires(std::same_as<At, SourceLine>&& Traceable<F, A, B>) auto operator()(
      A&& a, B&& b, At called = SourceLine::current()) const {
    return call_at(called, std::forward<A>(a), std::forward<B>(b));
  }
  template <class A, class B, class C, class At = SourceLine>
  requires(std::same_as<At, SourceLine>&& Traceable<F, A, B, C>) auto operator()(
      A&& a, B&& b, C&& c, At called = SourceLine::current()) const {
    return call_at(called, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c));
  }
  template <class A, class B, class C, class D, class At = SourceLine>
  requires(std::same_as<At, SourceLine>&& Traceable<F, A, B, C, D>) auto operator()(
      A&& a, B&& b, C&& c, D&& d, At called = SourceLine::current()) const {
    return call_at(called, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                   std::forward<D>(d));
  }
  template <class A, class B, class C, class D, class E, class At = SourceLine>
  requires(std::same_as<At, SourceLine>&& Traceable<F, A, B, C, D, E>) auto operator()(
      A&& a, B&& b, C&& c, D&& d, E&& e, At called = SourceLine::current()) const {
    return call_at(called, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                   std::forward<D>(d), std::forward<E>(e));
  }
  template <class A, class B, class C, class D, class E, class... More>
  requires(sizeof...(More) > 0 && Traceable<F, A, B, C, D, E, More...>) auto operator()(
      A&& a, B&& b, C&& c, D&& d, E&& e, More&&... more) const {
    return call_at(SourceLine{}, std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                   std::forward<D>(d), std::forward<E>(e), std::forward<More>(more)...);
  }
  template <class... A>
  requires(!Traceable<F, A...>) auto operator()(A&&...) const {
    return explain_untraceable<F, std::decay_t<A>...>();
  }

 private:
  template <class... A>
  result_t<F, A...> call_at(SourceLine called, A&&... args) const {
    FlatCall<F, std::decay_t<A>...> call(f_, args...);
    FlatTree flat = flatten_arguments(std::forward<A>(args)...);
    return call.rebuild(call_shard_map(info_, called, std::move(flat), BodyRef(call)));
  }

  mutable F f_;  // mutable: f may be a mutable lambda
  ShardMapInfo info_;
};

}  // namespace detail

// Returns a function of global arrays that applies f to the blocks of each device of the mesh.
// in_specs is one P for all arguments, or a list with one entry per argument; out_specs has the
// structure of f's result. Both may be prefixes of the trees. shard_map itself throws ValueError
// where a spec names an axis that the mesh does not have, or names an axis twice.
template <class F>
detail::ShardMapped<std::decay_t<F>> shard_map(F&& f, AnyMesh mesh, Specs in_specs, Specs out_specs,
                                               ShardMapOptions options = {},
                                               SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f),
          detail::ShardMapInfo(mesh, std::move(in_specs), std::move(out_specs), options, source)};
}

}  // namespace shmap
