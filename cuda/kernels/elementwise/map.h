// The loop of elementwise kernels over any operands, for the .cu files.
#pragma once
#include <algorithm>
#include <cstdint>

#include "cuda/kernels/embedded/scalar.h"
#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/launch/operand.h"

namespace shmap::cuda {

// The elements that one thread loads or stores at once.
template <class T, int count>
struct alignas(sizeof(T) * count) Items {
  T item[count];
};

// An operand as a kernel's parameter: literals are passed by value.
template <class T>
struct Source {
  const T* data;
  T value;
  Operand::Kind kind;
  unsigned char unused[15 - sizeof(T)];  // initialises all bytes of the parameter
};
template <class T>
Source<T> source_of(const Operand& operand) {
  Source<T> result{};
  result.kind = operand.kind;
  if (operand.kind == Operand::literal)
    __builtin_memcpy(&result.value, operand.data, sizeof(T));
  else
    result.data = static_cast<const T*>(operand.data);
  return result;
}
template <class T>
__device__ __forceinline__ Source<T> with_value(Source<T> source) {
  if (source.kind == Operand::scalar) source.value = *source.data;
  return source;
}

// Loads elements at … at + count - 1. Only `rest` of them exist; the last one takes the place of
// the others.
template <int count, class T>
__device__ __forceinline__ Items<T, count> load_items(const Source<T>& source, std::int64_t at,
                                                      std::int64_t rest, bool packed) {
  Items<T, count> result;
  if (source.kind != Operand::whole) {
    SHMAP_UNROLL
    for (int k = 0; k < count; ++k) result.item[k] = source.value;
  } else if (packed && rest >= count) {
    result = *reinterpret_cast<const Items<T, count>*>(source.data + at);
  } else {
    SHMAP_UNROLL
    for (int k = 0; k < count; ++k) result.item[k] = source.data[at + (k < rest ? k : rest - 1)];
  }
  return result;
}

template <class Op, class Out, int count, class... In>
__device__ __forceinline__ Items<Out, count> map_items(const Items<In, count>&... in) {
  Items<Out, count> result;
  SHMAP_UNROLL
  for (int k = 0; k < count; ++k) result.item[k] = Op::run(in.item[k]...);
  return result;
}

// out[i] = Op::run(in[i]...) of storage types. Each thread handles `count` neighbours at a time, in
// one access if `packed`, which requires aligned addresses.
template <class Op, int count, class Out, class... In>
__global__ void __launch_bounds__(kThreads)
    map_kernel(std::int64_t n, bool packed, Out* out, Source<In>... given) {
  after_predecessor();
  const auto run = [&](const Source<In>&... in) {
    const std::int64_t step = std::int64_t{gridDim.x} * kThreads * count;
    for (std::int64_t at = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * count; at < n;
         at += step) {
      const std::int64_t rest = n - at;
      const Items<Out, count> result =
          map_items<Op, Out, count>(load_items<count>(in, at, rest, packed)...);
      if (packed && rest >= count) {
        *reinterpret_cast<Items<Out, count>*>(out + at) = result;
      } else {
        SHMAP_UNROLL
        for (int k = 0; k < count; ++k)
          if (k < rest) out[at + k] = result.item[k];
      }
    }
  };
  run(with_value(given)...);
}

template <int bytes>
bool aligned_to(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

// The number of elements that a thread handles at once: 16 bytes of the largest type; 8 bytes for
// an op of many instructions, which is not bound by memory and whose code then stays smaller.
template <bool heavy, class... T>
inline constexpr int kPackCount = std::max<int>(1, (heavy ? 8 : 16) /
                                                       static_cast<int>(std::max({sizeof(T)...})));

template <class Op, bool heavy, class Out, class... In, class... Operands>
void map(const char* name, void* out, std::int64_t n, void* stream, const Operands&... operands) {
  if (n <= 0) return;
  constexpr int count = kPackCount<heavy, Out, In...>;
  const bool packed =
      aligned_to<sizeof(Out) * count>(out) &&
      ((operands.kind != Operand::whole || aligned_to<sizeof(In) * count>(operands.data)) && ...);
  launch(name, map_kernel<Op, count, Out, In...>, grid_for((n + count - 1) / count), dim3(kThreads),
         stream, n, packed, static_cast<Out*>(out), source_of<In>(operands)...);
}

// Defines name##Op: scalar::name on storage types.
#define SHMAP_UNARY_OP(name)                                    \
  struct name##_op {                                            \
    template <class T>                                          \
    static __device__ __forceinline__ T run(T x) {              \
      return scalar::narrow<T>(scalar::name(scalar::widen(x))); \
    }                                                           \
  };
#define SHMAP_BINARY_OP(name)                                                     \
  struct name##_op {                                                              \
    template <class T>                                                            \
    static __device__ __forceinline__ T run(T a, T b) {                           \
      return scalar::narrow<T>(scalar::name(scalar::widen(a), scalar::widen(b))); \
    }                                                                             \
  };
#define SHMAP_COMPARE_OP(name)                                   \
  struct name##_op {                                             \
    template <class T>                                           \
    static __device__ __forceinline__ Boolean run(T a, T b) {    \
      return {scalar::name(scalar::widen(a), scalar::widen(b))}; \
    }                                                            \
  };

}  // namespace shmap::cuda
