// Names of the C library's vector functions (libmvec: at most 4 ulp over the whole range; those
// used here come with glibc 2.35 and newer), for the .cpp files that compute transcendentals.
//
// Included after targets-inl.h, once for each instruction set, with SHMAP_MATH_F64 defined as 0 or
// 1 by the .cpp. SHMAP_VECTOR_MATH is 1 where the functions exist, and then
// SHMAP_VECTOR_FUNCTION(v, sin) is the name for one operand, SHMAP_VECTOR_FUNCTION(vv, pow) for
// two, on the vectors of this instruction set.
#undef SHMAP_VECTOR_MATH
#undef SHMAP_VECTOR_FUNCTION
#define SHMAP_VECTOR_MATH 0
#if SHMAP_VECTORS && defined(__GLIBC__) && defined(__x86_64__)
#if __GLIBC_PREREQ(2, 35)
#undef SHMAP_VECTOR_MATH
#define SHMAP_VECTOR_MATH 1
#if HWY_TARGET == HWY_AVX3 && SHMAP_MATH_F64
#define SHMAP_VECTOR_FUNCTION(operands, name) _ZGVeN8##operands##_##name
#elif HWY_TARGET == HWY_AVX3
#define SHMAP_VECTOR_FUNCTION(operands, name) _ZGVeN16##operands##_##name##f
#elif SHMAP_MATH_F64
#define SHMAP_VECTOR_FUNCTION(operands, name) _ZGVdN4##operands##_##name
#else
#define SHMAP_VECTOR_FUNCTION(operands, name) _ZGVdN8##operands##_##name##f
#endif
#endif
#endif
