// Reductions, for one thread.
//
// Float sums and products are pairwise, over short runs of several accumulators; f16 and bf16 are
// computed in f32 and rounded once. The order never depends on the CPU's vector width. It depends
// on `reduced` alone, so that a caller may split `outer` and `inner`, except where `inner` is less
// than 64: several such narrow rows are then reduced as one.
#pragma once
#include <cstdint>

#include "core/base/float_format.h"
#include "core/base/reduction_ops.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// in[outer, reduced, inner], row-major -> out[outer, inner], both of the dtype. reduced == 0 gives
// the identity (max of floats: -inf; max of integers: the lowest value).
using ReduceFn = void (*)(const void* in, void* out, std::int64_t outer, std::int64_t reduced,
                          std::int64_t inner);

// The kernel of `op` for `dtype`; nullptr where the dtype has no such op.
ReduceFn reduce_kernel(Reduction op, DType dtype);

// Writes the identity of `op`, one element of `dtype`.
void reduce_identity(Reduction op, DType dtype, void* out);

// One long reduction by several threads; bit for bit the result of reduce_kernel(1, n, 1). Each
// block of kReduceBlock elements gives a partial, an element of reduce_partial_dtype (f32 for the
// half types, else the dtype itself); the partials together give the result.
inline constexpr std::int64_t kReduceBlock = 65536;
inline constexpr std::int64_t reduce_block_count(std::int64_t n) {
  return (n + kReduceBlock - 1) / kReduceBlock;
}
constexpr DType reduce_partial_dtype(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }
// Writes partials[begin] … partials[end - 1] of in[0 … n).
void reduce_blocks(Reduction op, DType dtype, const void* in, std::int64_t n, std::int64_t begin,
                   std::int64_t end, void* partials);
// Writes one element of `dtype` from all `count` partials.
void reduce_partials(Reduction op, DType dtype, const void* partials, std::int64_t count,
                     void* out);

// Does the same as the kernel of `op`, but writes results of reduce_partial_dtype, because they
// will be reduced further.
void reduce_to_partials(Reduction op, DType dtype, const void* in, void* out, std::int64_t outer,
                        std::int64_t reduced, std::int64_t inner);
// Writes elements [begin, end) of the result for in[reduced, inner] to out[begin, end). They have
// the same bits as the kernel's. inner is at least 64, reduced at least 1.
void reduce_some_columns(Reduction op, DType dtype, const void* in, void* out, std::int64_t reduced,
                         std::int64_t inner, std::int64_t begin, std::int64_t end);

// Gives the bits of the kernel of `op` for an in[outer, reduced, inner] whose rows of `inner`
// elements are anywhere in memory: row r of group i begins at rows[i * reduced + r]. Only valid if
// reduces_rows_apart(reduced, inner).
bool reduces_rows_apart(std::int64_t reduced, std::int64_t inner);
void reduce_rows_apart(Reduction op, DType dtype, const void* const* rows, void* out,
                       std::int64_t outer, std::int64_t reduced, std::int64_t inner);

}  // namespace shmap::cpu
