// Collectives: how the devices of a shard_map body exchange blocks (jax.lax's parallel operators,
// and the device-variance primitives of JEP 17111).
//
// Axes are mesh axes in scope, major first: over several axes, ranks are row-major in the order
// given, which may differ from the mesh's order. Every function takes an array or a tree of arrays,
// and works on each leaf. The table shows how each function changes the variance of its operand (V:
// varies over the axes, I: invariant over them):
//
//   psum pmax pmin pmean  V -> I   ppermute pshuffle           V -> V   axis_index      -> V
//   all_gather            V -> V   psum_scatter                V -> V   pbroadcast    I -> V
//   all_gather_invariant  V -> I   all_to_all pswapaxes        V -> V   pscatter      I -> V
//   broadcast_from        V -> I   ragged_all_to_all           V -> V
//                                  with axis_index_groups      V -> V
//
// Where a collective takes a V operand, an operand that is invariant over some of the axes is first
// cast to vary, as pbroadcast casts it (so psum(psum(x)) multiplies by the number of ranks); with
// {.auto_pbroadcast = false} such an operand is a TypeError. pbroadcast and pscatter of an operand
// that already varies are TypeErrors. With {.check_vma = false} none of these is an error.
//
// axis_index_groups is a list of groups of ranks. All groups have the same length, and each rank is
// in exactly one of them. Each group performs the collective on its own, and a rank's number in its
// group is its position in the list.
//
// Collectives throw CollectiveError for an axis that is not in scope, ValueError for dims, sizes,
// groups, permutations and ranks that do not fit, and TypeError for dtypes and variances that do
// not fit. No collective waits for a value.
//
// In counters(), .collectives counts the calls that communicate, one per leaf of the tree
// (pbroadcast, pscatter and axis_index do not communicate). .collective_bytes adds up the bytes
// that these calls move: for sums, gathers, scatters and all_to_all the operand's bytes on every
// local device; for ppermute and broadcast_from only the bytes copied to another memory space
// (inside one memory space nothing is copied: the receiver shares the block); for ragged_all_to_all
// what the collectives that it consists of move. Over axes of size 1 nothing moves. For a
// collective between processes only the bytes that this process sends to other processes count.
#pragma once
#include <array>
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
  int axis = 0;        // dim of the result: the new dim of the ranks; if tiled, the dim that grows
  bool tiled = false;  // concatenate the blocks instead of stacking them
  Groups axis_index_groups = {};
};
struct PsumScatterOptions {
  int scatter_dimension = 0;  // if not tiled: its extent is the number of ranks, and it is removed
  bool tiled = false;
  Groups axis_index_groups = {};
};
struct AllToAllOptions {
  bool tiled = false;
  Groups axis_index_groups = {};
};
struct RaggedAllToAllOptions {
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
// indices: input_offsets, send_sizes, output_offsets and recv_sizes.
std::vector<Array> ragged_all_to_all_leaves(const std::vector<Array>& operands,
                                            const std::vector<Array>& outputs,
                                            const std::array<Array, 4>& indices, const Axes& axes,
                                            const RaggedAllToAllOptions& options,
                                            SourceLine source);
[[noreturn]] void throw_unlike_trees(SourceLine source);
Array pbroadcast_leaf(const Array& x, const Axes& axes, const char* what, SourceLine source);
Array broadcast_from_leaf(const Array& x, const Axes& axes, int rank, SourceLine source);
// The number of ranks over the axes; where groups are given, the number of ranks in each group.
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

// ---- reductions
// The elementwise sum, mean, maximum or minimum over the ranks. Floats are added in one balanced
// binary tree over the ranks in mesh order, except by NCCL, which has an order of its own. psum of
// bools counts the elements that are true, as an i32; pmean is psum / ranks; the mean of integers
// is a float.
template <ArrayTree T>
arg_t<T> psum(const T& x, const Axes& axes, const PsumOptions& options = {},
              SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::psum_leaf(leaf, axes, options, source); });
}
// psum of a host number: the number times the number of ranks, computed on the host. psum(1, "i")
// is the size of axis i.
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

// ---- permutations
// perm lists {from, to} pairs of ranks. A rank that is the `to` of no pair gets zeros.
template <ArrayTree T>
arg_t<T> ppermute(const T& x, const Axes& axes, const std::vector<std::pair<int, int>>& perm,
                  SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::ppermute_leaf(leaf, axes, perm, source); });
}
// The permutation that sends each rank's block to the rank `shift` places further on in the ring of
// ranks: ppermute(x, "i", ring_permutation("i")).
std::vector<std::pair<int, int>> ring_permutation(const Axes& axes, int shift = 1,
                                                  SourceLine source = SourceLine::current());
// ppermute of an rvalue donates the array: inside one memory space the receiver becomes the block's
// sole owner.
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

// ---- gathers and scatters
// Each rank gets the blocks of all ranks. all_gather of f32[2] over 8 ranks gives f32[8,2], or
// f32[16] if tiled.
template <ArrayTree T>
arg_t<T> all_gather(const T& x, const Axes& axes, const AllGatherOptions& options = {},
                    SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::all_gather_leaf(leaf, axes, options, source); });
}
// all_gather whose result is typed as invariant over the axes: it is equal on all ranks.
template <ArrayTree T>
arg_t<T> all_gather_invariant(const T& x, const Axes& axes, const AllGatherOptions& options = {},
                              SourceLine source = SourceLine::current()) {
  return detail::map_leaves(x, [&](const Array& leaf) {
    return detail::all_gather_invariant_leaf(leaf, axes, options, source);
  });
}
// Sums over the ranks, and leaves each rank its own part of the sum along dim scatter_dimension.
template <ArrayTree T>
arg_t<T> psum_scatter(const T& x, const Axes& axes, const PsumScatterOptions& options = {},
                      SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::psum_scatter_leaf(leaf, axes, options, source); });
}
// Leaves each rank its own part, along dim scatter_dimension, of a value that is invariant over the
// axes. No data moves between ranks.
template <ArrayTree T>
arg_t<T> pscatter(const T& x, const Axes& axes, const PscatterOptions& options = {},
                  SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::pscatter_leaf(leaf, axes, options, source); });
}

// ---- all_to_all
// Cuts dim split_axis into as many parts as there are ranks, sends part r to rank r, and
// concatenates the parts that a rank receives, in rank order, along dim concat_axis. If not tiled,
// the extent of dim split_axis must be the number of ranks; that dim is removed, and the received
// parts are stacked along a new dim. concat_axis is the position of the new dim among the dims that
// are left.
template <ArrayTree T>
arg_t<T> all_to_all(const T& x, const Axes& axes, int split_axis, int concat_axis,
                    const AllToAllOptions& options = {},
                    SourceLine source = SourceLine::current()) {
  return detail::map_leaves(x, [&](const Array& leaf) {
    return detail::all_to_all_leaf(leaf, axes, split_axis, concat_axis, options, source);
  });
}
// Swaps the mesh axes with dim `axis`, whose extent must be the number of ranks (all_to_all, not
// tiled).
template <ArrayTree T>
arg_t<T> pswapaxes(const T& x, const Axes& axes, int axis, const PsumOptions& options = {},
                   SourceLine source = SourceLine::current()) {
  return detail::map_leaves(x, [&](const Array& leaf) {
    return detail::pswapaxes_leaf(leaf, axes, axis, options, source);
  });
}

// ---- ragged_all_to_all
// Sends slices of rows, whose sizes only the values say, to the other ranks (a row is an element of
// dim 0). The four index operands have an element for each slice that this rank sends: with n ranks
// and K elements, K a multiple of n, slices 0 … K/n - 1 go to rank 0, the next K/n to rank 1, and
// so on. Slice i is operand[input_offsets[i] : input_offsets[i] + send_sizes[i]], and is written to
// rows output_offsets[i] and following of its *receiver's* result. The result is output, with the
// rows that were received in place of its own. recv_sizes[i] is the size of slice i of what this
// rank receives, in the order of the senders: all_to_all(send_sizes, axes, 0, 0, {.tiled = true}).
//
//   operand  output   input_offsets  send_sizes  output_offsets  recv_sizes     result
//   [1 2 2]  [0 0 0 0]  [0 1]          [1 2]       [0 0]           [1 1]     [1 3 0 0] on rank 0
//   [3 4 0]  [0 0 0 0]  [0 1]          [1 1]       [1 2]           [2 1]     [2 2 4 0] on rank 1
//
// Operand and output have one dtype, and agree in all dims but dim 0. They may be trees of one
// structure: all leaves are sent alike. The index operands are integers of rank 1 and equal length.
//
// What JAX leaves undefined is defined here, and never reaches outside of an array. Of two sizes of
// a slice that differ, the smaller one counts, and a negative size counts as 0. A row that would be
// read outside of operand, or written outside of output, is left out. Of slices that overlap in a
// result, the one with the greatest number among those received is written last. The derivative is
// that of these copies; a row that is sent more than once gets the sum of its cotangents.
//
// Shapes are static, so that more travels than is asked for. Let N be the rows of operand and M
// those of output. Where N <= M, the operands are gathered: every rank gets the N rows of every
// rank (on one memory space, one copy of each). Otherwise every rank sends M rows to every rank.
// Both are one collective for each leaf, counted as all_gather of operand, or as all_to_all of n ·
// M rows. One small all_to_all of 32 · K bytes comes before them, for all leaves together. The time
// on a device to find the rows grows with K · M.
template <ArrayTree T>
arg_t<T> ragged_all_to_all(const T& operand, const std::type_identity_t<T>& output,
                           const Array& input_offsets, const Array& send_sizes,
                           const Array& output_offsets, const Array& recv_sizes, const Axes& axes,
                           const RaggedAllToAllOptions& options = {},
                           SourceLine source = SourceLine::current()) {
  const std::array<Array, 4> indices = {input_offsets, send_sizes, output_offsets, recv_sizes};
  detail::FlatTree from, to;
  detail::flatten(operand, from, from.node);
  detail::flatten(output, to, to.node);
  if (from.key != to.key) detail::throw_unlike_trees(source);
  std::vector<Array> leaves =
      detail::ragged_all_to_all_leaves(from.leaves, to.leaves, indices, axes, options, source);
  std::size_t next = 0;
  return detail::rebuild(operand, leaves, next);
}

// ---- variance, broadcasts and ranks
// Casts an invariant value to one that varies over the axes. No data moves.
template <Tree T>
arg_t<T> pbroadcast(const T& x, const Axes& axes, SourceLine source = SourceLine::current()) {
  return detail::map_leaves(x, [&](const Array& leaf) {
    return detail::pbroadcast_leaf(leaf, axes, "pbroadcast", source);
  });
}
// Another name of pbroadcast.
template <Tree T>
arg_t<T> pvary(const T& x, const Axes& axes, SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::pbroadcast_leaf(leaf, axes, "pvary", source); });
}
// Sends the block of rank `rank` to all ranks. (pbroadcast only changes the type.)
template <ArrayTree T>
arg_t<T> broadcast_from(const T& x, const Axes& axes, int rank,
                        SourceLine source = SourceLine::current()) {
  return detail::map_leaves(
      x, [&](const Array& leaf) { return detail::broadcast_from_leaf(leaf, axes, rank, source); });
}
// The device's rank over the axes: an i32 scalar that varies over them.
Array axis_index(const Axes& axes, SourceLine source = SourceLine::current());
// The number of ranks over the axes.
int axis_size(const Axes& axes, SourceLine source = SourceLine::current());

}  // namespace shmap
