// Products that overlap with the collective beside them (collective matmuls): einsums of two
// operands, one of which is gathered or exchanged first, or whose result is summed and scattered.
// Each gives what the plain form in its comment gives; sums may be added in another order.
//
// In the body of a shard_map, over mesh axes in scope, major first: ranks over several axes are
// row-major in the order given, and make one ring. The forms:
//
//   none       the plain form: the collective, then the product, or the other way round
//   ring       n ranks multiply a part at a time, n products in all, while the next part travels
//              by one of n - 1 ppermutes; their own part first (gathers, exchanges) or last
//              (scatters). Exchanges send each part straight to its rank.
//   two_rings  two opposite ppermutes at once, each of half a part; where the dim is odd, one half
//              has an item more. Exchanges send to the ranks in both directions in turn.
//   automatic  what a model of the devices says is the fastest, by the sizes: a function of these
//              and the kind of devices alone, never of a measured time. SHMAP_OVERLAP forces it.
//
// Parts of a result are written into their places (dynamic_update_slice). Sums of bf16 and f16,
// over a gathered dim that is contracted and over ranks, are added in f32, and rounded once.
//
// Any einsum of two operands, with an ellipsis, diagonals and broadcast dims too. The plain form is
// taken whatever is asked for where there is one rank; where an array has no elements; where the
// dim that is gathered, split or joined is named twice in its operand or is summed in it alone; and
// for bools.
//
// Derivatives are overlapped products too: with respect to an operand that is gathered, an
// einsum_psum_scatter, and of that an all_gather_einsum; the others stay what they are, on
// cotangents. A part that the derivative needs again travels again: nothing gathered is kept.
// Derivatives have the form that was asked for. They work eagerly, under jit, jvp, grad and vmap.
//
// Under jit an einsum or matmul of an all_gather, and a psum_scatter of one, are made overlapped
// products where the model says that it pays (SHMAP_FIND_OVERLAP=0: never).
//
// Types: the operands are cast to vary over the axes and over what either varies over, as the plain
// form casts them; so the result varies over all these. Dtypes are promoted.
//
// Errors: ValueError for subscripts, dims, sizes and operand numbers that do not fit;
// CollectiveError for an axis that is not in scope; TypeError for variance. Nothing waits.
#pragma once
#include <cstdint>

#include "shmap/array.h"
#include "shmap/axes.h"
#include "shmap/ops.h"

namespace shmap {

enum class Overlap : std::uint8_t { automatic, none, ring, two_rings };

struct AllGatherEinsumOptions {
  int operand = 0;  // which is gathered: 0 or 1
  int axis = 0;     // of that operand: the dim that grows
  Overlap form = Overlap::automatic;
};
struct EinsumPsumScatterOptions {
  int scatter_dimension = 0;  // of the einsum's result: a multiple of the ranks
  Overlap form = Overlap::automatic;
};
struct AllToAllEinsumOptions {
  int operand = 0;     // which is exchanged: 0 or 1
  int split_axis = 0;  // of that operand: cut into as many parts as ranks, one for each
  int concat_axis = 0;
  Overlap form = Overlap::automatic;
};

// einsum(spec, all_gather(a, axes, {.axis = axis, .tiled = true}), b); with {.operand = 1}
// einsum(spec, a, all_gather(b, …)).
Array all_gather_einsum(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                        const AllGatherEinsumOptions& options = {});
// psum_scatter(einsum(spec, a, b), axes, {.scatter_dimension = …, .tiled = true}).
Array einsum_psum_scatter(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                          const EinsumPsumScatterOptions& options = {});
// einsum(spec, all_to_all(a, axes, split_axis, concat_axis, {.tiled = true}), b); with
// {.operand = 1} einsum(spec, a, all_to_all(b, …)).
Array all_to_all_einsum(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                        const AllToAllEinsumOptions& options = {});

// What a call of these operands and options does, and the microseconds that the model gives each
// form on one device: they are good for comparison alone. Errors as those of the call. A program's
// equations have it as their parameter `form`.
struct OverlapChoice {
  Overlap form;  // never automatic
  double none_us, ring_us, two_rings_us;
};
OverlapChoice overlap_choice(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                             const AllGatherEinsumOptions& options);
OverlapChoice overlap_choice(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                             const EinsumPsumScatterOptions& options);
OverlapChoice overlap_choice(Subscripts spec, const Array& a, const Array& b, const Axes& axes,
                             const AllToAllEinsumOptions& options);

}  // namespace shmap
