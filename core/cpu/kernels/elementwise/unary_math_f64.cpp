// exp to erf_inv of f64.
#include <cmath>
#include <cstddef>
#include <iterator>

#include "core/cpu/kernels/elementwise/unary_lookup.h"
#include "core/cpu/kernels/elementwise/vector_call.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/kernels/elementwise/unary_math_f64.cpp"
#include "core/cpu/kernels/vector/targets-inl.h"
//
#undef SHMAP_MATH_F64
#define SHMAP_MATH_F64 1
#include "core/cpu/kernels/elementwise/vector_math-inl.h"
//
#include "core/cpu/kernels/elementwise/exp-inl.h"
//
#include "core/cpu/kernels/elementwise/erf-inl.h"
//
#include "core/cpu/kernels/elementwise/unary_math-inl.h"

#if HWY_ONCE
namespace shmap::cpu {
SHMAP_KERNELS(find_unary_math);
UnaryFn unary_math_f64_kernel(UnaryOp op) { return SHMAP_BEST(find_unary_math)(op); }
}  // namespace shmap::cpu
#endif
