// Reductions on a GPU: any set of dims, given as runs.
//
// The order of every result depends on the extents and the dtype alone, without atomics: the bits
// are the same in every run and on every GPU. f16 and bf16 are reduced in f32 and rounded once;
// integers wrap in their dtype; max and min of elements with a NaN are NaN. `stream` is a
// cudaStream_t throughout.
#pragma once
#include <cstdint>

#include "core/base/arg_reduction.h"
#include "core/base/reduction_ops.h"
#include "shmap/dtype.h"

namespace shmap::cuda {

// The dims of a row-major array as runs that are alternately kept and reduced: kept[0], reduced[0],
// kept[1], …, kept[count].
struct ReduceRuns {
  static constexpr int kMost = 9;
  int count = 0;
  std::int64_t kept[kMost] = {1};
  std::int64_t reduced[kMost] = {};
};

// Bytes of scratch that reduce() needs: partial results of long runs, where there are few results.
std::int64_t reduce_scratch(DType dtype, const ReduceRuns& runs);

// in, of the runs' extents -> out[kept…], both of the dtype; empty runs give the identity.
// runs.count is at least 1. `scratch` has reduce_scratch(…) bytes (null if that is 0). TypeError
// where the dtype has no such reduction.
void reduce(Reduction op, DType dtype, const ReduceRuns& runs, const void* in, void* out,
            void* scratch, void* stream);

// in[outer, reduced, inner] -> out[outer, inner] of index_dtype (i32 or i64): the index of the
// largest (or smallest) element, the first of equal ones; a NaN wins over every number, the first
// NaN over later ones. `reduced` is at least 1. bool, integers and floats; TypeError for others.
std::int64_t arg_reduce_scratch(std::int64_t outer, std::int64_t reduced, std::int64_t inner);
void arg_reduce(ArgReduction op, DType dtype, DType index_dtype, std::int64_t outer,
                std::int64_t reduced, std::int64_t inner, const void* in, void* out, void* scratch,
                void* stream);

}  // namespace shmap::cuda
