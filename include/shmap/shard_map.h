// shard_map: per-device code with explicit collectives over a named mesh (JEP 14273,
// jax.shard_map). The body sees each device's block, with its real shape; it runs eagerly, once a
// process for all local devices, each primitive when it is called: host `if` works on
// device-invariant values and printing works in the middle.
//
// Inputs may move (they are brought to in_specs; one already in place is not copied); outputs never
// do: the body's blocks become the result's shards. Each result's variance must be a subset of the
// axes that its out_spec mentions.
#pragma once
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

// `arguments` has one child an argument. Returns the result's leaves as global arrays.
std::vector<Array> call_shard_map(const ShardMapInfo& info, FlatTree arguments, BodyRef body);

template <class F>
class ShardMapped {
 public:
  ShardMapped(F f, ShardMapInfo info) : f_(std::move(f)), info_(std::move(info)) {}

  template <class... A>
  requires Traceable<F, A...> result_t<F, A...>
  operator()(A&&... args) const {
    FlatCall<F, std::decay_t<A>...> call(f_, args...);
    FlatTree flat = flatten_arguments(std::forward<A>(args)...);
    return call.rebuild(call_shard_map(info_, std::move(flat), BodyRef(call)));
  }
  template <class... A>
  requires(!Traceable<F, A...>) auto operator()(A&&...) const {
    return explain_untraceable<F, std::decay_t<A>...>();
  }

 private:
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
