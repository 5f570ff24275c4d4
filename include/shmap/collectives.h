// Collectives: what a shard_map body does with the blocks of other devices (jax.lax's parallel
// operators, and the device-variance primitives of JEP 17111).
//
// Axes are mesh axes in scope, major first: ranks over several axes are row-major in the order
// given, which may differ from the mesh's. Every function takes a tree as well as an array, and
// works on each leaf. Types (V: varies over the axes, I: does not):
//
//   psum pmax pmin pmean  V -> I   ppermute pshuffle           V -> V   axis_index      -> V
//   all_gather            V -> V   psum_scatter                V -> V   pbroadcast    I -> V
//   all_gather_invariant  V -> I   all_to_all pswapaxes        V -> V   pscatter      I -> V
//   broadcast_from        V -> I   with axis_index_groups      V -> V
//
// An operand of a V collective that is invariant over some of the axes is cast first, as pbroadcast
// does (so psum(psum(x)) multiplies by the size); with {.auto_pbroadcast = false} that is a
// TypeError. pbroadcast and pscatter of a value that varies already are TypeErrors. With
// {.check_vma = false} neither is.
//
// axis_index_groups: lists of ranks that together hold each rank once, all of one length; each
// group is then a collective of its own, whose ranks are numbered as listed.
//
// Errors: CollectiveError for an axis that is not in scope; ValueError for dims, sizes, groups,
// permutations and ranks that do not fit; TypeError for dtypes and variance. Nothing waits.
//
// counters(): .collectives counts the calls that communicate, one a leaf (not pbroadcast, pscatter,
// axis_index). .collective_bytes adds up what they move: for sums, gathers, scatters and all_to_all
// the operand's bytes on every local device; for ppermute and broadcast_from the bytes that are
// copied to another memory space (inside one nothing is copied: the receiver shares the block).
// Over axes of one device nothing moves.
#pragma once
#include <concepts>
#include <type_traits>
#include <utility>
#include <vector>

#include "shmap/array.h"
#include "shmap/axes.h"
#include "shmap/tree.h"

namespace shmap {

using Groups = std::vector<std::vector<int>>;
struct PsumOptions {
  Groups axis_index_groups = {};
};
struct AllGatherOptions {
  int axis = 0;        // of the result; the new dim of ranks, or the dim that grows where tiled
  bool tiled = false;  // concatenate instead of stack
  Groups axis_index_groups = {};
};
struct PsumScatterOptions {
  int scatter_dimension = 0;  // untiled: of as many elements as ranks, and gone in the result
  bool tiled = false;
  Groups axis_index_groups = {};
};
struct AllToAllOptions {
  bool tiled = false;
  Groups axis_index_groups = {};
};
struct PscatterOptions {
  int scatter_dimension = 0;
  bool tiled = false;
};

namespace detail {

Array psum_leaf(const Array& x, const Axes& axes, const PsumOptions& options, SourceLine source);
Array pmean_leaf(const Array& x, const Axes& axes, const PsumOptions& options, SourceLine source);
Array pmax_leaf(const Array& x, const Axes& axes, const PsumOptions& options, SourceLine source);
Array pmin_leaf(const Array& x, const Axes& axes, const PsumOptions& options, SourceLine source);
Array ppermute_leaf(const Array& x, const Axes& axes, const std::vector<std::pair<int, int>>& perm,
                    SourceLine source);
Array pshuffle_leaf(const Array& x, const Axes& axes, const std::vector<int>& perm,
                    SourceLine source);
Array pswapaxes_leaf(const Array& x, const Axes& axes, int axis, const PsumOptions& options,
                     SourceLine source);
Array all_gather_leaf(const Array& x, const Axes& axes, const AllGatherOptions& options,
                      SourceLine source);
Array all_gather_invariant_leaf(const Array& x, const Axes& axes, const AllGatherOptions& options,
                                SourceLine source);
Array psum_scatter_leaf(const Array& x, const Axes& axes, const PsumScatterOptions& options,
                        SourceLine source);
Array pscatter_leaf(const Array& x, const Axes& axes, const PscatterOptions& options,
                    SourceLine source);
Array all_to_all_leaf(const Array& x, const Axes& axes, int split_axis, int concat_axis,
                      const AllToAllOptions& options, SourceLine source);
Array pbroadcast_leaf(const Array& x, const Axes& axes, const char* what, SourceLine source);
Array broadcast_from_leaf(const Array& x, const Axes& axes, int rank, SourceLine source);
// The number of ranks over the axes, or in each of the groups.
int rank_count(const Axes& axes, const Groups& groups, const char* what, SourceLine source);

template <class T, class F>
arg_t<T> map_leaves(const T& tree, const F& f) {
  if constexpr (std::same_as<T, Array>) {
    return f(tree);
  } else {
    FlatTree flat;
    flatten(tree, flat, flat.node);
    for (Array& leaf : flat.leaves) leaf = f(leaf);
    std::size_t next = 0;
    return rebuild(tree, flat.leaves, next);
  }
}

}  // namespace detail

// ---- reductions: the sum, mean, maximum or minimum over the ranks, elementwise. Floats are added
// in one balanced binary tree over the ranks in mesh order, except by NCCL, which has its own. psum
// of bools counts them in i32; pmean is psum / ranks; the mean of integers is floating.
template <ArrayTree T>
arg_t<T> psum(const T& x, const Axes& axes, const PsumOptions& options = {},
              SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::psum_leaf(leaf, axes, options, source); });
}
// Of a host number: that number × ranks, on the host. psum(1, "i") is the size of axis i.
template <Scalar T>
auto psum(T x, const Axes& axes, const PsumOptions& options = {},
          SourceLine source = SourceLine::current()) {
  using Sum = std::conditional_t<std::same_as<T, bool>, int, T>;
  const int ranks = detail::rank_count(axes, options.axis_index_groups, "psum", source);
  return static_cast<Sum>(static_cast<Sum>(x) * static_cast<Sum>(ranks));
}
template <ArrayTree T>
arg_t<T> pmean(const T& x, const Axes& axes, const PsumOptions& options = {},
               SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::pmean_leaf(leaf, axes, options, source); });
}
template <ArrayTree T>
arg_t<T> pmax(const T& x, const Axes& axes, const PsumOptions& options = {},
              SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::pmax_leaf(leaf, axes, options, source); });
}
template <ArrayTree T>
arg_t<T> pmin(const T& x, const Axes& axes, const PsumOptions& options = {},
              SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::pmin_leaf(leaf, axes, options, source); });
}

// ---- permutations: {from, to} pairs of ranks; a rank that no pair names as `to` gets zeros.
template <ArrayTree T>
arg_t<T> ppermute(const T& x, const Axes& axes, const std::vector<std::pair<int, int>>& perm,
                  SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::ppermute_leaf(leaf, axes, perm, source); });
}
// The permutation that hands each rank's block to the rank `shift` further on, around the ring of
// the axes' ranks: ppermute(x, "i", ring_permutation("i")).
std::vector<std::pair<int, int>> ring_permutation(const Axes& axes, int shift = 1,
                                                  SourceLine source = SourceLine::current());
// Of values given up: inside a memory space the receiver then owns the block alone.
template <ArrayTree T>
requires(!std::is_reference_v<T>) arg_t<T> ppermute(T&& x, const Axes& axes,
                                                    const std::vector<std::pair<int, int>>& perm,
                                                    SourceLine source = SourceLine::current()) {
  const T given = std::move(x);
  return ppermute(given, axes, perm, source);
}
// Rank r gets the block of rank perm[r].
template <ArrayTree T>
arg_t<T> pshuffle(const T& x, const Axes& axes, const std::vector<int>& perm,
                  SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::pshuffle_leaf(leaf, axes, perm, source); });
}
template <ArrayTree T>
requires(!std::is_reference_v<T>) arg_t<T> pshuffle(T&& x, const Axes& axes,
                                                    const std::vector<int>& perm,
                                                    SourceLine source = SourceLine::current()) {
  const T given = std::move(x);
  return pshuffle(given, axes, perm, source);
}

// ---- gathers and their transposes. f32[2] -> f32[8,2] over 8 ranks, or f32[16] where tiled.
template <ArrayTree T>
arg_t<T> all_gather(const T& x, const Axes& axes, const AllGatherOptions& options = {},
                    SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::all_gather_leaf(leaf, axes, options, source); });
}
// The same, typed as equal on all ranks.
template <ArrayTree T>
arg_t<T> all_gather_invariant(const T& x, const Axes& axes, const AllGatherOptions& options = {},
                              SourceLine source = SourceLine::current()) {
  return detail::map_leaves(x, [&](const Array& leaf) {
    return detail::all_gather_invariant_leaf(leaf, axes, options, source);
  });
}
// The sum over the ranks, of which each keeps its part of one dim.
template <ArrayTree T>
arg_t<T> psum_scatter(const T& x, const Axes& axes, const PsumScatterOptions& options = {},
                      SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::psum_scatter_leaf(leaf, axes, options, source); });
}
// Each rank's part of a value that all of them have: no communication.
template <ArrayTree T>
arg_t<T> pscatter(const T& x, const Axes& axes, const PscatterOptions& options = {},
                  SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::pscatter_leaf(leaf, axes, options, source); });
}

// ---- all_to_all: dim split_axis is cut into as many parts as ranks, part r goes to rank r, and
// the parts received lie in order along concat_axis. Untiled, split_axis has as many elements as
// ranks and goes, and concat_axis, counted without it, is a new dim.
template <ArrayTree T>
arg_t<T> all_to_all(const T& x, const Axes& axes, int split_axis, int concat_axis,
                    const AllToAllOptions& options = {},
                    SourceLine source = SourceLine::current()) {
  return detail::map_leaves(x, [&](const Array& leaf) {
    return detail::all_to_all_leaf(leaf, axes, split_axis, concat_axis, options, source);
  });
}
// Swaps the mesh axes with a dim of as many elements: an untiled all_to_all.
template <ArrayTree T>
arg_t<T> pswapaxes(const T& x, const Axes& axes, int axis, const PsumOptions& options = {},
                   SourceLine source = SourceLine::current()) {
  return detail::map_leaves(x, [&](const Array& leaf) {
    return detail::pswapaxes_leaf(leaf, axes, axis, options, source);
  });
}

// ---- variance and place
// A cast of an invariant value to a varying one: nothing moves.
template <Tree T>
arg_t<T> pbroadcast(const T& x, const Axes& axes, SourceLine source = SourceLine::current()) {
  return detail::map_leaves(x, [&](const Array& leaf) {
    return detail::pbroadcast_leaf(leaf, axes, "pbroadcast", source);
  });
}
template <Tree T>
arg_t<T> pvary(const T& x, const Axes& axes, SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::pbroadcast_leaf(leaf, axes, "pvary", source); });
}
// The block of one rank on all of them: a real broadcast.
template <ArrayTree T>
arg_t<T> broadcast_from(const T& x, const Axes& axes, int rank,
                        SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::broadcast_from_leaf(leaf, axes, rank, source); });
}
// The device's rank over the axes, an i32 scalar that varies over them.
Array axis_index(const Axes& axes, SourceLine source = SourceLine::current());
// The number of ranks over the axes.
int axis_size(const Axes& axes, SourceLine source = SourceLine::current());

}  // namespace shmap
