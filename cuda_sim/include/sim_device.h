// The spelling of device code for a host compiler: qualifiers, indices, barriers, warps, atomics
// and intrinsics. One thread of the machine runs kernels at a time, so atomics are plain.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "vector_functions.h"

#define SHMAP_SIM_DEVICE 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#ifndef __align__
#define __align__(n) __attribute__((aligned(n)))
#endif

#pragma GCC visibility push(default)
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace shmap_sim {
// These functions are called inside a kernel. They return once all participating threads have come.
int barrier(int votes, bool predicate);  // 0: nothing, 1: the count of true predicates
// Swaps values among the lanes of mask: the value that source_lane gave.
std::uint64_t shuffle(unsigned mask, std::uint64_t value, int source_lane);
unsigned vote(unsigned mask, bool predicate);  // bit i: lane i's predicate; 0 outside of mask
void sync_warp(unsigned mask);
unsigned active_lanes();  // of this thread's warp: those that exist
void grid_dependency();   // cudaGridDependencySynchronize of the running thread
[[noreturn]] void trap();
void* dynamic_shared();  // what extern __shared__ names; aligned to 1024 bytes
}  // namespace shmap_sim
#pragma GCC visibility pop

static constexpr int warpSize = 32;

namespace shmap_sim {
inline int lane() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) &
                          31u);
}
template <class T>
inline T shuffle_value(unsigned mask, T value, int source_lane) {
  static_assert(sizeof(T) <= 8, "warp shuffles move four or eight bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(mask, bits, source_lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
}  // namespace shmap_sim

inline void cudaGridDependencySynchronize() { shmap_sim::grid_dependency(); }
inline void __syncthreads() { shmap_sim::barrier(0, false); }
inline int __syncthreads_count(int predicate) { return shmap_sim::barrier(1, predicate != 0); }
inline int __syncthreads_or(int predicate) { return shmap_sim::barrier(1, predicate != 0) != 0; }
inline int __syncthreads_and(int predicate) { return shmap_sim::barrier(1, predicate == 0) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) { shmap_sim::sync_warp(mask); }
inline unsigned __activemask() { return shmap_sim::active_lanes(); }
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return shmap_sim::vote(mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return shmap_sim::vote(mask, predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return shmap_sim::vote(mask, predicate == 0) == 0;
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = shmap_sim::lane();
  return shmap_sim::shuffle_value(mask, value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int lane = shmap_sim::lane();
  const int source = lane ^ lane_mask;
  return shmap_sim::shuffle_value(mask, value, source > (lane | (width - 1)) ? lane : source);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = shmap_sim::lane();
  const int source = lane - static_cast<int>(delta);
  return shmap_sim::shuffle_value(mask, value, source < (lane & ~(width - 1)) ? lane : source);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = shmap_sim::lane();
  const int source = lane + static_cast<int>(delta);
  return shmap_sim::shuffle_value(mask, value, source > (lane | (width - 1)) ? lane : source);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __trap() { shmap_sim::trap(); }
template <class T>
inline T __ldg(const T* address) {
  return *address;
}
template <class T>
inline T __ldcs(const T* address) {
  return *address;
}
template <class T>
inline T __ldcg(const T* address) {
  return *address;
}
template <class T>
inline void __stcs(T* address, T value) {
  *address = value;
}
template <class T>
inline void __stcg(T* address, T value) {
  *address = value;
}

#define SHMAP_SIM_ATOMIC(name, type, expression) \
  inline type name(type* address, type value) {  \
    const type old = *address;                   \
    *address = static_cast<type>(expression);    \
    return old;                                  \
  }
#define SHMAP_SIM_ATOMIC_ORDER(type)                           \
  SHMAP_SIM_ATOMIC(atomicMax, type, old > value ? old : value) \
  SHMAP_SIM_ATOMIC(atomicMin, type, old < value ? old : value) \
  SHMAP_SIM_ATOMIC(atomicAnd, type, old& value)                \
  SHMAP_SIM_ATOMIC(atomicOr, type, old | value)                \
  SHMAP_SIM_ATOMIC(atomicXor, type, old ^ value)
#define SHMAP_SIM_ATOMIC_SWAP(type)                                \
  SHMAP_SIM_ATOMIC(atomicExch, type, value)                        \
  inline type atomicCAS(type* address, type compare, type value) { \
    const type old = *address;                                     \
    if (old == compare) *address = value;                          \
    return old;                                                    \
  }
inline int atomicAdd(int* address, int value) {
  const int old = *address;
  *address = static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value));
  return old;
}
SHMAP_SIM_ATOMIC(atomicAdd, unsigned int, old + value)
SHMAP_SIM_ATOMIC(atomicAdd, unsigned long long, old + value)
SHMAP_SIM_ATOMIC(atomicAdd, float, old + value)
SHMAP_SIM_ATOMIC(atomicAdd, double, old + value)
SHMAP_SIM_ATOMIC(atomicSub, unsigned int, old - value)
SHMAP_SIM_ATOMIC_ORDER(int)
SHMAP_SIM_ATOMIC_ORDER(unsigned int)
SHMAP_SIM_ATOMIC_ORDER(long long)
SHMAP_SIM_ATOMIC_ORDER(unsigned long long)
SHMAP_SIM_ATOMIC(atomicInc, unsigned int, old >= value ? 0 : old + 1)
SHMAP_SIM_ATOMIC_SWAP(int)
SHMAP_SIM_ATOMIC_SWAP(unsigned int)
SHMAP_SIM_ATOMIC_SWAP(unsigned long long)
SHMAP_SIM_ATOMIC(atomicExch, float, value)
inline unsigned short atomicCAS(unsigned short* address, unsigned short compare,
                                unsigned short value) {
  const unsigned short old = *address;
  if (old == compare) *address = value;
  return old;
}
#undef SHMAP_SIM_ATOMIC
#undef SHMAP_SIM_ATOMIC_ORDER
#undef SHMAP_SIM_ATOMIC_SWAP

namespace shmap_sim {
template <class To, class From>
inline To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}
}  // namespace shmap_sim

inline unsigned __float_as_uint(float x) { return shmap_sim::bits_as<unsigned>(x); }
inline int __float_as_int(float x) { return shmap_sim::bits_as<int>(x); }
inline float __uint_as_float(unsigned x) { return shmap_sim::bits_as<float>(x); }
inline float __int_as_float(int x) { return shmap_sim::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return shmap_sim::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return shmap_sim::bits_as<double>(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((static_cast<unsigned __int128>(a) * b) >> 64);
}
inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<long long>(now.tv_sec) * 1000000000 + now.tv_nsec;
}
inline void __nanosleep(unsigned) {}

#define SHMAP_SIM_MIN_MAX(type)                                       \
  inline constexpr type min(type a, type b) { return b < a ? b : a; } \
  inline constexpr type max(type a, type b) { return a < b ? b : a; }
SHMAP_SIM_MIN_MAX(int)
SHMAP_SIM_MIN_MAX(unsigned int)
SHMAP_SIM_MIN_MAX(long)
SHMAP_SIM_MIN_MAX(unsigned long)
SHMAP_SIM_MIN_MAX(long long)
SHMAP_SIM_MIN_MAX(unsigned long long)
#undef SHMAP_SIM_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
