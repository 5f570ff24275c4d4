// A transformer layer in the 2D weight-gathered layout (Pope et al., "Efficiently scaling
// transformer inference", section 3.2.3; the example of JEP 14273), on a mesh with the axes x,
// y and z. There are two versions with equal values: `plain_layer` is written for whole
// arrays, and a partitioner splits it by constraints; `manual_layer` is the body of a
// shard_map with explicit collectives, whose two large products overlap with the communication
// beside them.
//
//   n = layer_norm(x) · norm                           mean and variance over E
//   q, wi0, wi1 = n q_wi;  k, v = n kv                 one product each (multi-query: one k, v)
//   y = attention(rope(q), rope(k), v)                 causal
//   result = x + concatenate(y, swish(wi0) · wi1) o_wo
//                                                      attention and MLP in parallel, one product
//
// Extents: batch B, time T, embed E, heads H, D of a query, F of the MLP a head. D is even. On the
// mesh B is a multiple of |z|, E one of |x| |y|, H one of |x| |y| |z|.
//
// Dtypes: products have the weights' dtype, and so have cached k and v; the norm, rotations, swish
// and softmax are computed in f32; the result has x's dtype.
#pragma once
#include <shmap/shmap.h>

#include <optional>
#include <string>

namespace transformer {

using shmap::Array;
using shmap::Mesh;
using shmap::Overlap;
using shmap::P;

struct LayerWeights {
  Array norm;  // [E]
  Array q_wi;  // [H, E, D + 2 F]
  Array kv;    // [E, 1, 2 D]
  Array o_wo;  // [H, D + F, E]
};

// The weights of one layer of stacked layers; dim 0 counts layers, and `layer` may be traced.
LayerWeights layer_of(const LayerWeights& stacked, const Array& layer);

// Keys and values of a sequence so far, of which the first rows are filled: [B, S, 1, D].
struct Cache {
  Array k, v;
};
Cache empty_cache(std::int64_t batch, std::int64_t capacity, std::int64_t qkv, shmap::DType dtype);

// The positions of x's rows in their sequences, `start` (an i32 scalar) to start + T - 1, and the
// sines and cosines of the rows' rotations.
struct Rows {
  Array start, sin, cos;  // the latter [T, 1, D / 2], f32
};
Rows rows_from(const Array& start, std::int64_t count, std::int64_t qkv, double theta = 10000);

// The mask of attention behind a cache: row t sees the columns up to start + t. [1, 1, T, S], bool.
Array seen(const Array& start, std::int64_t rows, std::int64_t columns);

// Rotates pairs of t[B, T, n, D], element d with d + D / 2, by their rows' angles; keeps t's dtype.
Array rope(const Rows& rows, const Array& t);

// The layouts of arrays on the mesh, by the names of their dims.
const shmap::AxisRules& layout();
shmap::Specs weight_specs();  // for LayerWeights: {P("x", "y"), …}
P residual_spec();            // for x and the result: [batch.z, time, embed.xy]

struct LayerResult {
  Array y;      // [B, T, E]
  Cache cache;  // with the rows' k and v inserted, if a cache was given
};

// The layer for whole arrays x[B, T, E]. With a mesh, arrays between the products are constrained
// to the layout (call it under jit then); without one it is the layer as anyone would write it.
// Without a cache the rows must be the whole sequence, and the result's cache is their k and v.
LayerResult plain_layer(const Array& x, const LayerWeights& w, const Rows& rows,
                        const std::optional<Cache>& cache = {},
                        const std::optional<Mesh>& mesh = {});

// The layer for blocks, in a body over x, y and z (and other axes, over which everything may vary):
// x by residual_spec, weights by weight_specs; rows, cache and the result's cache are the same on
// all devices. Over each ring of |x| ranks: |x| - 1 ppermutes and |x| products, twice.
LayerResult manual_layer(const Array& x, const LayerWeights& w, const Rows& rows,
                         const std::optional<Cache>& cache = {}, Overlap form = Overlap::automatic);

// Computes (x - mean) / sqrt(variance + 1e-6) · scale over the last dim, in f32. The dim's blocks
// are split over `axes` (none: it is whole).
Array layer_norm_over(const shmap::Axes& axes, const Array& x, const Array& scale);

}  // namespace transformer
