// The batching rules of the primitives of core/ops, and what such rules are written with. A batched
// operand has a batch dimension (call.dims); an element is what lies at one index of that
// dimension. Dimensions that parameters name are those of an element.
#pragma once
#include "core/ir/rules.h"

namespace shmap {

// ---- what rules are written with
// `shape` with an extent more, at dim `at`.
Shape with_extent(const Shape& shape, int at, std::int64_t extent);
// x with dim `from` at `to`, the others in their order.
Array move_dim(Array x, int from, int to, SourceLine source);
// x repeated along a new dim `at`.
Array repeat_along(Array x, int at, std::int64_t size, SourceLine source);
// Dimension d of an element, as a dimension of the operand, whose batch dimension is `dim`.
inline std::int64_t past(std::int64_t d, int dim) { return d >= dim ? d + 1 : d; }
// The type of an element of operand i.
int element_rank(const BatchCall& call, std::size_t i);
Shape element_shape(const BatchCall& call, std::size_t i);
// x with the batch dimension `at`: moved there from `dim`, or, where dim is -1 (x is not batched),
// with x repeated along it.
Array with_batch_dim(const Array& x, int dim, int at, std::int64_t size, SourceLine source);
Array with_batch_dim(const BatchCall& call, std::size_t i, int at);
// Gives what the primitive makes of these operands; `dim` is the batch dimension of every result.
void give(BatchCall& call, std::span<Array> in, const Params& params, int dim);
void give(BatchCall& call, Array x, const Params& params, int dim);
// The one result of a batch of size 0.
void give_nothing(BatchCall& call);

// ---- elementwise (batch_rules.cpp)
// Operands of one shape, or scalars.
void batch_elementwise(BatchCall& call);
void batch_clamp(BatchCall& call);
// One operand, and parameters that name no dimensions: the batch dimension stays where it is.
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

// ---- parts at static and at computed places (slicing_batch.cpp)
void batch_slice(BatchCall& call);
// Starts that differ make it a gather.
void batch_dynamic_slice(BatchCall& call);
// Starts that differ: each element of the operand is taken from the update or kept.
void batch_dynamic_update_slice(BatchCall& call);
void batch_gather(BatchCall& call);
void batch_scatter_add(BatchCall& call);

// ---- products (dot_batch.cpp)
void batch_dot(BatchCall& call);

}  // namespace shmap
