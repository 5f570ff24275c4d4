// The shapes of gathers and scatters: one dim of a block is cut into one piece per rank.
#pragma once
#include "collectives/communicator.h"
#include "collectives/primitives.h"

namespace shmap {

// The shape of all_gather's result: dim `dimension` is a new dim of size ranks, or if tiled the
// operand's dim times `ranks`.
Shape gathered_shape(const Shape& in, const AllGatherParams& p);
// The shape of psum_scatter's and pscatter's result. ValueError where the dim cannot be cut.
Shape scattered_shape(const ShapedArray& in, const ScatterParams& p, const char* what);

// The layout of the pieces in a block, from the type of one piece (a gather's operand, a scatter's
// result) and the dim along which they are cut.
Interleaved interleaved(const ShapedArray& piece, int dimension);

// The types and the work of all_gather and all_gather_invariant.
void eval_gather(Types in, const Params& params, std::span<ShapedArray> out);
void run_gather(GroupCall& call);

namespace detail {
// Implements all_gather and all_gather_invariant.
Array gather_leaf(const Primitive& primitive, const Array& x, const Axes& axes,
                  const AllGatherOptions& options, SourceLine source);
// normalize_dim with the caller's line in its error.
int dim_of(int dim, int rank, const char* what, SourceLine source);
}  // namespace detail

}  // namespace shmap
