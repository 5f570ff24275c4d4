// pow and atan2 of f64.
#include <cmath>

#include "core/cpu/kernels/elementwise/binary_lookup.h"
#include "core/cpu/kernels/elementwise/vector_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/binary_math_f64.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#undef SHMAP_MATH_F64
#define SHMAP_MATH_F64 1
#include "core/cpu/kernels/elementwise/vector_math-inl.h"
//
#include "core/cpu/kernels/elementwise/pow-inl.h"
//
#include "core/cpu/kernels/elementwise/map_binary-inl.h"
//
#include "core/cpu/kernels/elementwise/binary_math-inl.h"

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_binary_math);
BinaryFn binary_math_f64_kernel(BinaryOp op) { return SHMAP_BEST(find_binary_math)(op); }
}  // namespace shmap::cpu
#endif
