// The C library's vector functions (libmvec: at most 4 ulp over the whole range; those used here
// come with glibc 2.35 and newer), for the .cpp files that compute transcendentals.
//
// Included after targets-inl.h, once for each instruction set, with SHMAP_MATH_F64 defined as 0 or
// 1 by the .cpp. Defines the element type, `Real`. SHMAP_VECTOR_MATH is 1 where the functions
// exist, and then there are the vector types D, V and Raw, and SHMAP_VECTOR_FUNCTION_1(Sin, sin)
// defines a functor `V Sin::run(V)`, SHMAP_VECTOR_FUNCTION_2(Pow, pow) one of two operands.
#undef SHMAP_VECTOR_MATH
#undef SHMAP_VECTOR_FUNCTION_1
#undef SHMAP_VECTOR_FUNCTION_2
#define SHMAP_VECTOR_MATH 0
#if SHMAP_VECTORS && defined(__GLIBC__) && defined(__x86_64__)
#if __GLIBC_PREREQ(2, 35)
#undef SHMAP_VECTOR_MATH
#define SHMAP_VECTOR_MATH 1
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace shmap::cpu::HWY_NAMESPACE {
namespace {

#if SHMAP_MATH_F64
using Real = double;
#else
using Real = float;
#endif

#if SHMAP_VECTOR_MATH
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<Real>;
using V = hn::Vec<D>;
using Raw = decltype(V::raw);

// The functions' names under the vector ABI of x86-64.
#undef SHMAP_VECTOR_NAME
#if HWY_TARGET == HWY_AVX3 && SHMAP_MATH_F64
#define SHMAP_VECTOR_NAME(operands, name) _ZGVeN8##operands##_##name
#elif HWY_TARGET == HWY_AVX3
#define SHMAP_VECTOR_NAME(operands, name) _ZGVeN16##operands##_##name##f
#elif SHMAP_MATH_F64
#define SHMAP_VECTOR_NAME(operands, name) _ZGVdN4##operands##_##name
#else
#define SHMAP_VECTOR_NAME(operands, name) _ZGVdN8##operands##_##name##f
#endif

#if defined(__clang__)
// Clang passes such vectors in memory unless the whole file is compiled for the instruction set,
// so that the calls go through a few lines of assembly (vector_call.h).
HWY_INLINE V call(void (*function)(), V a, V b) {
  alignas(64) Real x[hn::MaxLanes(D{})], y[hn::MaxLanes(D{})];
  hn::Store(a, D{}, x);
  hn::Store(b, D{}, y);
#if HWY_TARGET == HWY_AVX3
  shmap_vector_call_512(x, y, function);
#else
  shmap_vector_call_256(x, y, function);
#endif
  return hn::Load(D{}, x);
}
#define SHMAP_VECTOR_FUNCTION_1(Name, name)                                         \
  extern "C" void SHMAP_VECTOR_NAME(v, name)();                                     \
  struct Name {                                                                     \
    static HWY_INLINE V run(V x) { return call(SHMAP_VECTOR_NAME(v, name), x, x); } \
  };
#define SHMAP_VECTOR_FUNCTION_2(Name, name)                                               \
  extern "C" void SHMAP_VECTOR_NAME(vv, name)();                                          \
  struct Name {                                                                           \
    static HWY_INLINE V run(V a, V b) { return call(SHMAP_VECTOR_NAME(vv, name), a, b); } \
  };
#else
#define SHMAP_VECTOR_FUNCTION_1(Name, name)                                       \
  extern "C" Raw SHMAP_VECTOR_NAME(v, name)(Raw);                                 \
  struct Name {                                                                   \
    static HWY_INLINE V run(V x) { return V{SHMAP_VECTOR_NAME(v, name)(x.raw)}; } \
  };
#define SHMAP_VECTOR_FUNCTION_2(Name, name)                                                    \
  extern "C" Raw SHMAP_VECTOR_NAME(vv, name)(Raw, Raw);                                        \
  struct Name {                                                                                \
    static HWY_INLINE V run(V a, V b) { return V{SHMAP_VECTOR_NAME(vv, name)(a.raw, b.raw)}; } \
  };
#endif
#endif

}  // namespace
}  // namespace shmap::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
