// shard_map: per-device code with explicit collectives over a named mesh (JEP 14273,
// jax.shard_map). The body sees each device's block, with its real shape; it runs eagerly, once a
// process for all local devices, each primitive when it is called: host `if` works on
// device-invariant values and printing works in the middle.
//
// Inputs may move (they are brought to in_specs; one already in place is not copied); outputs never
// do: the body's blocks become the result's shards. Each result's variance must be a subset of the
// axes that its out_spec mentions.
#pragma once
#include <concepts>
#include <type_traits>
#include <utility>

#include "shmap/flat_call.h"
#include "shmap/mesh.h"
#include "shmap/partition_spec.h"

namespace shmap {

struct ShardMapOptions {
  bool check_vma = true;  // reject outputs that may differ over an axis which their spec leaves out
  bool auto_pbroadcast =
      true;  // cast operands of unlike variance to their union; off: such an op is an error
};

namespace detail {

// What shard_map was made with, checked once.
struct ShardMapInfo {
  ShardMapInfo(AnyMesh mesh, Specs in_specs, Specs out_specs, ShardMapOptions options,
               SourceLine source);
  AnyMesh mesh;
  Specs in_specs, out_specs;
  ShardMapOptions options;
  SourceLine source;
};

// `arguments` has one child an argument. `called`: the line of the call, for errors; one of a
// header of the library (a function called by jit, or by std::invoke) says nothing, and is left
// out. Returns the result's leaves as global arrays.
std::vector<Array> call_shard_map(const ShardMapInfo& info, SourceLine called, FlatTree arguments,
                                  BodyRef body);

template <class F>
class ShardMapped {
 public:
  ShardMapped(F f, ShardMapInfo info) : f_(std::move(f)), info_(std::move(info)) {}

  // An overload for each number of arguments: behind a pack there is no place for the caller's
  // line. Its type is asked first, so that a call with more arguments asks nothing else.
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

  mutable F f_;  // a mutable lambda may be mapped too
  ShardMapInfo info_;
};

}  // namespace detail

// f on the blocks of a mesh. in_specs: one P for every argument, or a list with one entry an
// argument; out_specs mirrors what f returns; both may be prefixes of the trees. ValueError at once
// where a spec names an unknown axis or one twice.
template <class F>
detail::ShardMapped<std::decay_t<F>> shard_map(F&& f, AnyMesh mesh, Specs in_specs, Specs out_specs,
                                               ShardMapOptions options = {},
                                               SourceLine source = SourceLine::current()) {
  return {std::forward<F>(f),
          detail::ShardMapInfo(mesh, std::move(in_specs), std::move(out_specs), options, source)};
}

}  // namespace shmap
