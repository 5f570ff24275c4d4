// Chains: elementwise operations of f32 in one pass over the elements, which pass intermediate
// values on in registers.
#pragma once
#include <cstdint>

#include "core/base/reduction_ops.h"

namespace shmap::cpu {

// The elementwise operations that chains have, by their names in core/base/elementwise_ops.h.
#define SHMAP_CHAIN_BINARY(X) X(add) X(sub) X(mul) X(div) X(max) X(min)
#define SHMAP_CHAIN_UNARY(X) X(square) X(sqrt) X(neg) X(abs)

#define SHMAP_ENUMERATOR(name) name,
enum class ChainCode : std::uint8_t {
  none,
  widen,       // first operation of a chain only: `in` is bf16
  round,       // to the nearest bf16 value, as f32
  round_bf16,  // like round, for bf16 values whose NaNs are all quiet: rounded as if they were
               // numbers, they stay NaNs
  narrow,      // last operation of a chain only: `out` is bf16; the value is already rounded to
               // bf16
  SHMAP_CHAIN_BINARY(SHMAP_ENUMERATOR) SHMAP_CHAIN_UNARY(SHMAP_ENUMERATOR)
};
#undef SHMAP_ENUMERATOR

// The order of an operation's operands: `value` is what the chain passes on, `other` an operand.
enum class ChainForm : std::uint8_t {
  vector,        // value op other[i]
  scalar,        // value op *other
  vector_first,  // other[i] op value
  scalar_first,  // *other op value
  self,          // value op value; also operations of one operand
};

struct ChainOp {
  ChainCode code;
  ChainForm form;
  const float* other;
};

inline constexpr int kMostChainOps = 16;

// out[i] = the value of the last operation for in[i]; bit for bit the result of the kernels run one
// by one. `in` and `out` are f32, except for widen and narrow. `out` may be `in` where their
// elements have one size, or an `other`. around: writes past the caches; `out` must then be the
// start of a cache line, and a non_temporal_fence() must follow.
using ChainFn = void (*)(const ChainOp* ops, int count, const void* in, void* out, bool around,
                         std::int64_t n);

// Null where this CPU has no such kernel.
ChainFn chain_kernel();

// Reduces the chain's values over n >= 1 elements to one, without storing these values: bit for bit
// the result of reduce_kernel(1, n, 1) on the stored values. The last operation must not be
// `narrow`.
using ChainFoldFn = void (*)(const ChainOp* ops, int count, const void* in, float* out,
                             std::int64_t n);
// Null where there is no such kernel; sum and max have one wherever chain_kernel() is not null.
ChainFoldFn chain_fold_kernel(Reduction op);

}  // namespace shmap::cpu
