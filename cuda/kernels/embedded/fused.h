// Functions that the source text of fused programs' kernels calls (cuda/fused/fused_source.h).
// Compiled as text at run time: includes only other headers of this folder.
#pragma once
#include "cuda/kernels/embedded/dependent_launch.h"
#include "cuda/kernels/embedded/reduction.h"
#include "cuda/kernels/embedded/scalar.h"
#include "cuda/kernels/embedded/warp.h"

namespace shmap::cuda {

// V contiguous elements (V: a power of two), which load() and store() move by accesses of up to 16
// bytes.
template <class T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Pack {
  T at[V];
};

#if defined(__CUDA_ARCH__)
namespace fused_detail {

// The type of one access of so many bytes: with the type of the elements the compiler might move a
// Pack element by element.
template <int bytes>
struct Access;
template <>
struct Access<1> {
  using type = unsigned char;
};
template <>
struct Access<2> {
  using type = unsigned short;
};
template <>
struct Access<4> {
  using type = unsigned int;
};
template <>
struct Access<8> {
  using type = uint2;
};
template <>
struct Access<16> {
  using type = uint4;
};
template <class A>
__device__ __forceinline__ void put(A* to, A value) {
  *to = value;
}
// One store instruction: the compiler would otherwise put a store into each of the branches that
// compute the value.
__device__ __forceinline__ void put(uint4* to, uint4 value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
template <class P>
using AccessOf = typename Access<(sizeof(P) < 16 ? sizeof(P) : 16)>::type;

}  // namespace fused_detail
#endif

template <int V, class T>
__device__ __forceinline__ Pack<T, V> load(const T* from) {
#if defined(__CUDA_ARCH__)
  using Access = fused_detail::AccessOf<Pack<T, V>>;
  constexpr int count = sizeof(Pack<T, V>) / sizeof(Access);
  Access parts[count];
#pragma unroll
  for (int i = 0; i < count; ++i) parts[i] = reinterpret_cast<const Access*>(from)[i];
  Pack<T, V> pack;
  memcpy(&pack, parts, sizeof(pack));
  return pack;
#else
  return *reinterpret_cast<const Pack<T, V>*>(from);
#endif
}
template <int V, class T>
__device__ __forceinline__ void store(T* to, const Pack<T, V>& pack) {
#if defined(__CUDA_ARCH__)
  using Access = fused_detail::AccessOf<Pack<T, V>>;
  constexpr int count = sizeof(Pack<T, V>) / sizeof(Access);
  Access parts[count];
  memcpy(parts, &pack, sizeof(pack));
#pragma unroll
  for (int i = 0; i < count; ++i) fused_detail::put(reinterpret_cast<Access*>(to) + i, parts[i]);
#else
  *reinterpret_cast<Pack<T, V>*>(to) = pack;
#endif
}

// An operand of one element: in device memory or, if `at` is null, in `bits`.
template <class T>
struct One {
  const T* at;
  unsigned long bits;
};
template <class T>
__device__ __forceinline__ T value_of(const One<T>& one) {
  if (one.at != nullptr) return *one.at;
  T value;
  memcpy(&value, &one.bits, sizeof(T));
  return value;
}

template <class To, class From>
__device__ __forceinline__ To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// One thread's share of a reduction. The thread's elements come in groups of `group` neighbours:
// add() combines element i of each group into at[i], and whole() combines these results, the upper
// half of them into the lower half until one is left.
template <class Op, class T, int group>
struct Partial {
  T at[group];
  __device__ __forceinline__ Partial() {
#pragma unroll
    for (int i = 0; i < group; ++i) at[i] = Op::template start<T>();
  }
  __device__ __forceinline__ void add(int i, T x) { at[i] = Op()(at[i], x); }
  __device__ __forceinline__ T whole() const {
    T folded[group];
#pragma unroll
    for (int i = 0; i < group; ++i) folded[i] = at[i];
#pragma unroll
    for (int half = group / 2; half > 0; half /= 2) {
#pragma unroll
      for (int i = 0; i < half; ++i) folded[i] = Op()(folded[i], folded[i + half]);
    }
    return folded[0];
  }
};

// Combines the values of each `lanes` neighbouring lanes (a power of two, at most a warp) with op,
// by xor shuffles of half the distance each time. The lower lane's value is always the first
// operand, so that all lanes get the same bits.
template <int lanes, class T, class Op>
__device__ __forceinline__ T reduce_lanes(T value, Op op) {
  const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const T other = shuffle_xor(value, distance);
    value = (lane & distance) != 0 ? op(other, value) : op(value, other);
  }
  return value;
}
// As reduce_lanes(), over a thread block of 2 to 32 warps (a power of two), all threads of which
// make the call. `partial`: one element for each warp, in shared memory; it may be reused only
// after another barrier.
template <int warps, class T, class Op>
__device__ __forceinline__ T reduce_block(T value, T* partial, Op op) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  value = reduce_lanes<kWarp>(value, op);
  if (lane == 0) partial[static_cast<int>(threadIdx.x) / kWarp] = value;
  __syncthreads();
  return reduce_lanes<warps>(partial[lane % warps], op);
}

}  // namespace shmap::cuda
