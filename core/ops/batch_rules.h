// The batching rules of the primitives of core/ops, and helpers for such rules. A batched operand
// has a batch dimension (call.dims); an element is the part at one index of that dimension.
// Dimensions in parameters are those of an element.
#pragma once
#include "core/ir/rules.h"

namespace shmap {

// ---- helpers
// Returns `shape` with one more dim of extent `extent` at position `at`.
Shape with_extent(const Shape& shape, int at, std::int64_t extent);
// Moves dim `from` of x to position `to`; the other dims keep their order.
Array move_dim(Array x, int from, int to, SourceLine source);
// Repeats x along a new dim at position `at`.
Array repeat_along(Array x, int at, std::int64_t size, SourceLine source);
// The dim of the operand that is dim d of an element; `dim` is the operand's batch dimension.
inline std::int64_t past(std::int64_t d, int dim) { return d >= dim ? d + 1 : d; }
// The rank and the shape of an element of operand i.
int element_rank(const BatchCall& call, std::size_t i);
Shape element_shape(const BatchCall& call, std::size_t i);
// Returns x with its batch dimension at position `at`: moved there from `dim`, or, if dim is -1 (x
// is not batched), repeated along a new dim.
Array with_batch_dim(const Array& x, int dim, int at, std::int64_t size, SourceLine source);
Array with_batch_dim(const BatchCall& call, std::size_t i, int at);
// Binds the primitive on these operands and sets the call's results; `dim` is their batch
// dimension.
void give(BatchCall& call, std::span<Array> in, const Params& params, int dim);
void give(BatchCall& call, Array x, const Params& params, int dim);
// Sets the only result for a batch of size 0.
void give_nothing(BatchCall& call);

// ---- elementwise (batch_rules.cpp)
// Operands of one shape, or scalars.
void batch_elementwise(BatchCall& call);
void batch_clamp(BatchCall& call);
// One operand, and parameters without dimensions: the batch dimension stays where it is.
void batch_in_place(BatchCall& call);
void batch_bitcast(BatchCall& call);

// ---- reductions, scans, sorts (reduce_batch.cpp)
void batch_reduce(BatchCall& call);
void batch_arg_reduce(BatchCall& call);
void batch_cumulative(BatchCall& call);
void batch_sort(BatchCall& call);
void batch_top_k(BatchCall& call);

// ---- shapes (shape_batch.cpp)
void batch_broadcast(BatchCall& call);
void batch_reshape(BatchCall& call);
void batch_transpose(BatchCall& call);
void batch_rev(BatchCall& call);
void batch_concatenate(BatchCall& call);
void batch_pad(BatchCall& call);

// ---- slices at static and at computed positions (slicing_batch.cpp)
void batch_slice(BatchCall& call);
// With starts that differ between elements it becomes a gather.
void batch_dynamic_slice(BatchCall& call);
// With starts that differ between elements it becomes a selection between operand and update.
void batch_dynamic_update_slice(BatchCall& call);
void batch_gather(BatchCall& call);
void batch_scatter_add(BatchCall& call);

// ---- products (dot_batch.cpp)
void batch_dot(BatchCall& call);

}  // namespace shmap
