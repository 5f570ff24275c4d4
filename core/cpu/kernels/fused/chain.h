// Chains: elementwise operations of f32, or of 32-bit integers, in one pass over the elements,
// which pass intermediate values on in registers.
#pragma once
#include <cstdint>

#include "core/base/reduction_ops.h"
#include "shmap/dtype.h"

namespace shmap::cpu {

// The elementwise operations that chains have, by their names in core/base/elementwise_ops.h: of
// all three dtypes, of f32 alone, and of i32 and u32 alone. Chains of integers also divide by
// constants.
#define SHMAP_CHAIN_BINARY(X) X(add) X(sub) X(mul) X(max) X(min)
#define SHMAP_CHAIN_BINARY_FLOAT(X) X(div)
#define SHMAP_CHAIN_BINARY_INT(X) \
  X(bit_and) X(bit_or) X(bit_xor) X(shift_left) X(shift_right_logical) X(shift_right_arithmetic)
#define SHMAP_CHAIN_UNARY(X) X(square) X(neg) X(abs)
#define SHMAP_CHAIN_UNARY_FLOAT(X) X(exp) X(sqrt) X(floor) X(ceil) X(round)
#define SHMAP_CHAIN_UNARY_INT(X) X(not_)

#define SHMAP_ENUMERATOR(name) name,
enum class ChainCode : std::uint8_t {
  none,
  keep,           // keeps the value for the later operations of form `kept` and `kept_first`
  widen,          // first operation of a chain only: `in` is bf16
  to_bf16,        // rounds to the nearest bf16 value, as f32
  quiet_to_bf16,  // like to_bf16, for bf16 values whose NaNs are all quiet: rounded as if they were
                  // numbers, they stay NaNs
  narrow,         // last operation of a chain only: `out` is bf16; the value is already rounded to
                  // bf16
  narrow_i8,      // last operation of a chain only: `out` is i8, converted as by cast_kernel
  narrow_u8,      // the same for u8
  SHMAP_CHAIN_BINARY(SHMAP_ENUMERATOR) SHMAP_CHAIN_BINARY_FLOAT(SHMAP_ENUMERATOR)
      SHMAP_CHAIN_BINARY_INT(SHMAP_ENUMERATOR) SHMAP_CHAIN_UNARY(SHMAP_ENUMERATOR)
          SHMAP_CHAIN_UNARY_FLOAT(SHMAP_ENUMERATOR) SHMAP_CHAIN_UNARY_INT(SHMAP_ENUMERATOR)
              quotient,  // div of integers; it and rem are of form `scalar` only, and `other` is a
                         // ChainDivisor
  rem,
};
#undef SHMAP_ENUMERATOR

// Whether the operation can only be the last one of a chain.
constexpr bool ends_chain(ChainCode code) {
  return code == ChainCode::narrow || code == ChainCode::narrow_i8 || code == ChainCode::narrow_u8;
}

// Whether the operation has constants of its own that the compiler keeps in registers.
constexpr bool is_heavy(ChainCode code) {
  return code == ChainCode::exp || code == ChainCode::quotient || code == ChainCode::rem;
}

// The order of an operation's operands: `value` is what the chain passes on, `other` an operand.
enum class ChainForm : std::uint8_t {
  vector,        // value op other[i]
  scalar,        // value op *other
  vector_first,  // other[i] op value
  scalar_first,  // *other op value
  self,          // value op value; also operations of one operand
  kept,          // value op the value of the last `keep`
  kept_first,    // the value of the last `keep` op value
};

struct ChainOp {
  ChainCode code;
  ChainForm form;
  const void* other;  // of the chain's dtype; for quotient and rem a ChainDivisor
};

inline constexpr int kMostChainOps = 16;

// out[i] = the value of the last operation for in[i]; bit for bit the result of the kernels run one
// by one. `in` and `out` are of the chain's dtype, except for widen, narrow, narrow_i8 and
// narrow_u8. `out` may be `in` where their elements have one size, or an `other`. around: writes
// past the caches; a non_temporal_fence() must then follow.
using ChainFn = void (*)(const ChainOp* ops, int count, const void* in, void* out, bool around,
                         std::int64_t n);

// The kernel for chains of f32, i32 or u32; null for other dtypes, and where this CPU has no such
// kernel.
ChainFn chain_kernel(DType dtype);

// Reduces the chain's values of f32 over n >= 1 elements to one, without storing these values: bit
// for bit the result of reduce_kernel(1, n, 1) on the stored values. The chain must not keep a
// value, nor narrow it.
using ChainFoldFn = void (*)(const ChainOp* ops, int count, const void* in, float* out,
                             std::int64_t n);
// Null where there is no such kernel; sum and max have one wherever chain_kernel(f32) is not null.
ChainFoldFn chain_fold_kernel(Reduction op);

}  // namespace shmap::cpu
