// Shapes of gathers and scatters: one dim of a block, cut into as many pieces as ranks.
#pragma once
#include "collectives/communicator.h"
#include "collectives/primitives.h"

namespace shmap {

// all_gather's result: dim `dimension` of it is the ranks', or `ranks` times the operand's where
// tiled.
Shape gathered_shape(const Shape& in, const AllGatherParams& p);
// psum_scatter's and pscatter's. ValueError where the dim cannot be cut.
Shape scattered_shape(const ShapedArray& in, const ScatterParams& p, const char* what);

// How the pieces lie, from the type of one of them (a gather's operand, a scatter's result) and the
// dim that they are cut along.
Interleaved interleaved(const ShapedArray& piece, int dimension);

namespace detail {
// all_gather and all_gather_invariant.
Array gather_leaf(const Primitive& primitive, const Array& x, const Axes& axes,
                  const AllGatherOptions& options, SourceLine source);
// normalize_dim with the caller's line.
int dim_of(int dim, int rank, const char* what, SourceLine source);
}  // namespace detail

}  // namespace shmap
