// Overlapped products (collective matmuls): einsums of two operands that communicate while they
// multiply. Either one operand is gathered or exchanged (all_gather, all_to_all), or the result is
// summed and scattered (psum_scatter). Each function gives the result of the plain form in its
// comment, except that sums may be added in another order.
//
// Overlapped products are called in the body of a shard_map, over mesh axes in scope, major first.
// Over several axes, ranks are row-major in the order given, and all ranks together form one ring.
// The forms, for n ranks:
//
//   none       the plain form: the collective, then the einsum, or the other way round
//   ring       each rank multiplies one part at a time, in n products, while the next part travels
//              by one of n - 1 ppermutes. A rank's own part comes first where the operand is
//              gathered or exchanged, and last where the result is scattered. Where the operand is
//              exchanged, each part is sent directly to its rank.
//   two_rings  two ppermutes in opposite directions at once, each of half a part; if the dim is
//              odd, one half has one item more. Where the operand is exchanged, parts are sent to
//              the ranks in both directions in turn.
//   automatic  the form that a model of the devices estimates to be fastest. The choice depends on
//              the sizes, the kind of devices and which of them share a host, never on a measured
//              time. SHMAP_OVERLAP overrides it.
//
// Parts of a result are written into the result in place (dynamic_update_slice). Sums of bf16 and
// f16 over a gathered dim that is contracted, and over ranks, are added in f32 and rounded once.
//
// Any einsum of two operands is accepted, also with an ellipsis, diagonals and broadcast dims.
// Whatever form is asked for, the plain form is used where there is one rank; where an array has no
// elements; where the dim that is gathered, split or joined is named twice in its operand, or
// occurs in that operand only and is summed; and for bools.
//
// Derivatives are overlapped products too, in the form that was asked for. The derivative of an
// all_gather_einsum with respect to the gathered operand is an einsum_psum_scatter, and the
// derivative of an einsum_psum_scatter is an all_gather_einsum; the derivative with respect to any
// other operand is the same kind of product, applied to cotangents. Gathered operands are not
// stored as residuals: the parts that a derivative needs are sent again. Overlapped products and
// their derivatives work eagerly and under jit, jvp, grad and vmap.
//
// Under jit an einsum or matmul of an all_gather, and a psum_scatter of an einsum or matmul, become
// overlapped products where the model estimates that this is faster (SHMAP_FIND_OVERLAP=0 turns it
// off).
//
// As in the plain form, the operands are cast to vary over `axes` and over all axes over which
// either operand varies, and their dtypes are promoted. The result varies over all these axes.
//
// The functions throw ValueError for subscripts, dims, sizes and operand numbers that do not fit,
// CollectiveError for an axis that is not in scope, and TypeError for variances that do not fit. No
// call waits for its result.
#pragma once
#include <cstdint>

#include "shmap/array.h"
#include "shmap/axes.h"
#include "shmap/ops.h"

namespace shmap {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // `none` is also the name of a value, in axes.h
enum class Overlap : std::uint8_t { automatic, none, ring, two_rings };
#pragma GCC diagnostic pop

struct AllGatherEinsumOptions {
  int operand = 0;  // the operand that is gathered: 0 or 1
  int axis = 0;     // the dim of that operand that grows
  Overlap form = Overlap::automatic;
};
struct EinsumPsumScatterOptions {
  int scatter_dimension = 0;  // dim of the einsum's result, divisible by the number of ranks
  Overlap form = Overlap::automatic;
};
struct AllToAllEinsumOptions {
  int operand = 0;     // the operand that is exchanged: 0 or 1
  int split_axis = 0;  // the dim of that operand that is cut into one part per rank
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

// The form that a call of an overlapped product with these arguments chooses, and the microseconds
// that the model estimates for each form on one device. Use the estimates only to compare forms.
// overlap_choice throws the errors of that call. In a program, the parameter `form` of the equation
// is the choice.
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
