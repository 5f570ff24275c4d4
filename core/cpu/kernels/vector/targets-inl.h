// Compiles the .cpp that includes it once for each instruction set, chosen at run time.
//
// For the .cpp files of core/cpu/kernels only, which define HWY_TARGET_INCLUDE (their own path)
// before they include this file; hence no include guard. What they define lies in
//   HWY_BEFORE_NAMESPACE(); namespace shmap::cpu::HWY_NAMESPACE { … } HWY_AFTER_NAMESPACE();
// and below `#if HWY_ONCE` SHMAP_KERNELS(find) exports a lookup function, SHMAP_BEST(find)(…) calls
// the best one for this machine. Most kernels are plain loops over functors, which the compiler
// vectorises for each set; SHMAP_VECTORS is 1 where explicit vectors of f32 and f64 with masked
// loads and stores may be used beside them (AVX2, AVX-512). Without Highway the plain loops are
// compiled once, for the compiler's baseline.
//
// The choice is the library's own (instruction_set.h), not that of Highway's HWY_EXPORT, which
// needs libhwy. While libhwy 1.0.3 is loaded it measures a clock's resolution, which takes 3.5 ms.
#if SHMAP_HAVE_HIGHWAY
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128 | HWY_AVX2 | HWY_AVX3))
#endif
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "core/cpu/kernels/vector/instruction_set.h"

#undef SHMAP_VECTORS
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define SHMAP_VECTORS 1
#else
#define SHMAP_VECTORS 0
#endif
#undef SHMAP_KERNELS
#undef SHMAP_BEST
#define SHMAP_KERNELS(find)                                                           \
  constexpr decltype(&HWY_STATIC_DISPATCH(find)) find##_kernels[kInstructionSets] = { \
      HWY_CHOOSE_AVX3(find), HWY_CHOOSE_AVX2(find), &HWY_STATIC_DISPATCH(find)}
#define SHMAP_BEST(find) (*best_kernel_of(find##_kernels))

#else  // no Highway
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#define HWY_NAMESPACE N_PORTABLE
#define HWY_ONCE 1
#define SHMAP_VECTORS 0
#define SHMAP_KERNELS(find) static_assert(true)
#define SHMAP_BEST(find) N_PORTABLE::find
#endif

// Before a loop whose iterations are independent even where its arrays coincide.
#ifndef SHMAP_INDEPENDENT
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // a loop that stays scalar is no error
#define SHMAP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define SHMAP_INDEPENDENT _Pragma("GCC ivdep")
#else
#define SHMAP_INDEPENDENT
#endif
#endif
