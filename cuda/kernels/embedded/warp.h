// Exchange of values among the 32 lanes of a warp, all of which must make the call. Compiled in the
// .cu files and, as text, at run time.
//
// T has 1, 2, 4 or 8 bytes and is trivially copyable: an integer, a float or a storage type.
#pragma once
#if !defined(__CUDACC_RTC__)
#include <cuda_runtime.h>
#include <string.h>
#endif

#include "cuda/kernels/embedded/scalar.h"

namespace shmap::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

namespace warp_detail {

// A value as the bits of one or two registers, which the hardware exchanges.
template <int bytes>
struct Register {
  using type = unsigned int;
};
template <>
struct Register<8> {
  using type = unsigned long long;
};
template <class T>
__device__ __forceinline__ auto to_register(T value) {
  typename Register<sizeof(T)>::type bits = 0;
  memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
__device__ __forceinline__ T from_register(typename Register<sizeof(T)>::type bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace warp_detail

// The value of the lane whose number is this lane's number xor lane_bits.
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int lane_bits) {
  return warp_detail::from_register<T>(
      __shfl_xor_sync(kAllLanes, warp_detail::to_register(value), lane_bits));
}
// shuffle_up: the value of the lane whose number is lower by `distance`; shuffle_down: higher by
// `distance`. The lane's own value where there is no such lane.
template <class T>
__device__ __forceinline__ T shuffle_up(T value, int distance) {
  return warp_detail::from_register<T>(
      __shfl_up_sync(kAllLanes, warp_detail::to_register(value), static_cast<unsigned>(distance)));
}
template <class T>
__device__ __forceinline__ T shuffle_down(T value, int distance) {
  return warp_detail::from_register<T>(__shfl_down_sync(kAllLanes, warp_detail::to_register(value),
                                                        static_cast<unsigned>(distance)));
}

}  // namespace shmap::cuda
