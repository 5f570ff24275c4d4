// jit over a mesh. The function works on whole (global) arrays and does not mention devices; its
// program is split over the mesh (partitioned, as by jax.jit with in_shardings and out_shardings),
// and the collectives that the split needs are added to the program.
//
//   auto f = jit([](Array x, Array w) { return matmul(x, w); }, mesh, {P("i", none), P()}, P("i"));
//
// The specs say how arguments and results are split over the mesh; they never change a value. An
// argument with another sharding on the mesh's devices is moved to its spec as device_put moves it,
// and so is an argument that no user has placed; an argument that was placed on other devices is a
// ValueError, as in shard_map. Specs that are left out are chosen:
//
//   out_specs  a result keeps the sharding that the program gives it
//   in_specs   an argument that is on the mesh keeps its sharding; any other argument gets the
//              sharding with which a constraint, a shard_map or an operation with a split operand
//              uses the argument, or the sharding that a split result needs; where none of these
//              applies, the argument is replicated
//
// Everything else is as in jit(f): programs are kept by types, shardings and static members,
// results stay valid, an argument passed as an rvalue is donated. Over an AbstractMesh the function
// can be traced (make_jaxpr), explained (explain_sharding) and simulated (simulate), but not
// called. The function must not be called in the body of a shard_map, whose values are blocks.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "shmap/jit.h"
#include "shmap/mesh.h"
#include "shmap/partition_spec.h"

namespace shmap {

namespace detail {

class KnownSpecs;  // the arguments' shardings, by the specs, in the latest call

// The arguments of a jit over a mesh, checked once, and how such a function calls its cache.
struct PartitionInfo {
  PartitionInfo(AnyMesh mesh, std::optional<Specs> in_specs, std::optional<Specs> out_specs,
                SourceLine source);
  JitCache::Result call(JitCache& cache, JitCache::Call call, FlatTree arguments) const;

  const MeshImpl* mesh;                      // may be abstract
  std::optional<Specs> in_specs, out_specs;  // empty: chosen
  SourceLine source;
  std::string key;  // part of the cache's key: keeps programs over other meshes or specs apart
  std::shared_ptr<KnownSpecs> known;
};

template <class F>
using PartitionedJit = Jitted<F, PartitionInfo>;

// The type of the last parameter, the caller's line. A CallersLine cannot be made from {}, so that
// the braces in jit(f, mesh, {}) can only mean the empty list of specs.
class CallersLine {
 public:
  CallersLine(SourceLine source) : source_(source) {}
  operator SourceLine() const { return source_; }

 private:
  SourceLine source_;
};

}  // namespace detail

// in_specs is one P for all arguments, or a list with one entry per argument; out_specs has the
// structure of f's result. As for shard_map, both may be prefixes of the trees. jit itself throws
// ValueError where a spec names an axis that the mesh does not have, or names an axis twice.
template <class F>
detail::PartitionedJit<std::decay_t<F>> jit(F&& f, AnyMesh mesh, Specs in_specs, Specs out_specs,
                                            detail::CallersLine source = SourceLine::current()) {
  return {std::forward<F>(f),
          detail::PartitionInfo(mesh, std::move(in_specs), std::move(out_specs), source)};
}
template <class F>
detail::PartitionedJit<std::decay_t<F>> jit(F&& f, AnyMesh mesh, Specs in_specs,
                                            detail::CallersLine source = SourceLine::current()) {
  return {std::forward<F>(f),
          detail::PartitionInfo(mesh, std::move(in_specs), std::nullopt, source)};
}
template <class F>
detail::PartitionedJit<std::decay_t<F>> jit(F&& f, AnyMesh mesh,
                                            detail::CallersLine source = SourceLine::current()) {
  return {std::forward<F>(f), detail::PartitionInfo(mesh, std::nullopt, std::nullopt, source)};
}

}  // namespace shmap
