// Chains: elementwise operations of f32 one after another in one pass, which hand their values on
// in registers.
#pragma once
#include <cstdint>

#include "core/base/reduction_ops.h"

namespace shmap::cpu {

enum class ChainCode : std::uint8_t {
  none,
  add,
  sub,
  mul,
  div,
  max,
  min,
  square,  // of one operand from here on
  sqrt,
  neg,
  abs,
  widen,       // of a chain's first operation alone: `in` is bf16
  round,       // to the nearest bf16's value
  round_bf16,  // the same after an operation on values of bf16 whose NaNs are quiet ones: rounded
               // as if they were numbers, their bits still are those of a NaN
  narrow,      // of its last alone: `out` is bf16, of a value that is one
};

// What an operation reads beside the value that comes down the chain.
enum class ChainForm : std::uint8_t {
  vector,        // value op other[i]
  scalar,        // value op *other
  vector_first,  // other[i] op value
  scalar_first,  // *other op value
  self,          // value op value; and those of one operand
};

struct ChainOp {
  ChainCode code;
  ChainForm form;
  const float* other;
};

inline constexpr int kMostChainOps = 16;

// out[i] = the last operation's value, of in[i]; the bits are those of the kernels one by one.
// `in` and `out` are of f32, but for widen and narrow. `out` may be `in` where their elements have
// one size, or an `other`. around: written past the caches, where out is the start of a
// cache line (a non_temporal_fence() has to follow).
using ChainFn = void (*)(const ChainOp* ops, int count, const void* in, void* out, bool around,
                         std::int64_t n);

// Null where this machine has no kernel of them.
ChainFn chain_kernel();

// The reduction of the chain's values over n >= 1 elements to one, which nobody has to store: the
// bits are those of reduce_kernel(1, n, 1) of what the chain would write. Its last operation is no
// `narrow`.
using ChainFoldFn = void (*)(const ChainOp* ops, int count, const void* in, float* out,
                             std::int64_t n);
// Null where there is none: of sums and of the largest values there is one where chain_kernel is.
ChainFoldFn chain_fold_kernel(Reduction op);

}  // namespace shmap::cpu
