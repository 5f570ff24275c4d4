#include "cuda/kernels/elementwise/fill.h"

#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/fast_div.h"

namespace shmap::cuda {
namespace {

struct same_op {
  template <class T>
  static __device__ __forceinline__ T run(T x) {
    return x;
  }
};

template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    iota_kernel(Index items, T* out, FastDiv<Index> inner, FastDiv<Index> n) {
  after_predecessor();
  for (Index i = blockIdx.x * Index{kThreads} + threadIdx.x; i < items;
       i += gridDim.x * Index{kThreads}) {
    Index row = inner.divide(i);
    const auto value = static_cast<std::int64_t>(n.split(row));
    if constexpr (scalar::is_float<scalar::Compute<T>>)
      out[i] = scalar::cast<T>(static_cast<double>(value));  // exact up to 2^53
    else
      out[i] = static_cast<T>(value);
  }
}

template <class T>
void run_iota(void* out, std::int64_t items, std::int64_t n, std::int64_t inner, void* stream) {
  with_index(items, [&]<class Index>(Index) {
    launch("iota", iota_kernel<T, Index>, grid_for(items), dim3(kThreads), stream,
           static_cast<Index>(items), static_cast<T*>(out), FastDiv<Index>(inner),
           FastDiv<Index>(n));
  });
}

}  // namespace

void fill(void* out, Operand value, int itemsize, std::int64_t n, void* stream) {
  const bool known = with_bits(
      itemsize, [&]<class T>() { map<same_op, false, T, T>("fill", out, n, stream, value); });
  check_launched("fill", known);
}

void iota(DType dtype, void* out, std::int64_t outer, std::int64_t n, std::int64_t inner,
          void* stream) {
  const std::int64_t items = outer * n * inner;
  if (items <= 0) return;
  const auto run = [&]<class T>() { run_iota<T>(out, items, n, inner, stream); };
  check_launched("iota",
                 is_integer(dtype) ? with_bits(itemsize(dtype), run) : with_float(dtype, run));
}

}  // namespace shmap::cuda
