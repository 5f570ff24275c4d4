// The reductions and the cumulative operations, one row for each: primitives, the kernels of every
// backend, fused programs and reducing collectives name an operation by the enumerators that are
// made from these rows.
#pragma once
#include <cstdint>

#include "core/base/op_domain.h"

namespace shmap {

// X(name, domain, primitive): a reduction, the dtypes that it takes, and its primitive's name.
//   sum, prod   f16 and bf16 are computed in f32 and rounded once; integers wrap in their dtype
//   max, min    NaN if any element is NaN
//   any, all    bitwise or (any), bitwise and (all)
#define SHMAP_REDUCTIONS(X)     \
  X(sum, numbers, reduce_sum)   \
  X(prod, numbers, reduce_prod) \
  X(max, plain, reduce_max)     \
  X(min, plain, reduce_min)     \
  X(any, bits, reduce_or)       \
  X(all, bits, reduce_and)

// X(name, domain): a cumulative operation, which is also its primitive's name.
//   cumsum, cumprod  f16, bf16 and f32 are accumulated in f64; integers wrap in their dtype
//   cummax, cummin   NaN from the first NaN element on
//   cumlogsumexp     accumulated in f64
#define SHMAP_CUMULATIVES(X) \
  X(cumsum, numbers)         \
  X(cumprod, numbers)        \
  X(cummax, plain)           \
  X(cummin, plain)           \
  X(cumlogsumexp, floats)

#define SHMAP_ENUMERATOR(name, ...) name,
#define SHMAP_ONE(...) +1
enum class Reduction : std::uint8_t { SHMAP_REDUCTIONS(SHMAP_ENUMERATOR) };
enum class Cumulative : std::uint8_t { SHMAP_CUMULATIVES(SHMAP_ENUMERATOR) };
inline constexpr int kReductionCount = SHMAP_REDUCTIONS(SHMAP_ONE);
#undef SHMAP_ENUMERATOR
#undef SHMAP_ONE

// For messages: "sum".
constexpr const char* to_string(Reduction op) {
#define SHMAP_NAME(name, ...) #name,
  constexpr const char* kNames[] = {SHMAP_REDUCTIONS(SHMAP_NAME)};
  return kNames[static_cast<int>(op)];
}
constexpr const char* to_string(Cumulative op) {
  constexpr const char* kNames[] = {SHMAP_CUMULATIVES(SHMAP_NAME)};
#undef SHMAP_NAME
  return kNames[static_cast<int>(op)];
}

}  // namespace shmap
