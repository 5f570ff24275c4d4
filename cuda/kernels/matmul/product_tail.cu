#include "cuda/kernels/matmul/product_tail.h"

#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/matmul/activated.h"

namespace shmap::cuda {
namespace {

template <class T>
struct Tail {
  std::int64_t m, n, elements, ldc, stride_c;
  T* c;
  const T* bias;
  Activation function;
  unsigned char unused[7];  // so that all bytes of the parameter are initialised
};

template <class T>
__global__ void __launch_bounds__(kThreads) finish(const Tail<T> t) {
  after_predecessor();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < t.elements; i += step) {
    const std::int64_t row = i / t.n, column = i % t.n;
    T& at = t.c[row / t.m * t.stride_c + row % t.m * t.ldc + column];
    float x = scalar::widen(at);
    if (t.bias != nullptr) x += scalar::widen(t.bias[column]);
    at = scalar::narrow<T>(activated(x, t.function));
  }
}

template <class T>
void run(const LtGemm& g, void* native_stream) {
  const Tail<T> t = {g.m,
                     g.n,
                     g.batch * g.m * g.n,
                     g.ldc,
                     g.stride_c,
                     static_cast<T*>(g.c),
                     static_cast<const T*>(g.bias),
                     g.function,
                     {}};
  launch("product", finish<T>, grid_for(t.elements), dim3(kThreads), native_stream, t);
}

}  // namespace

void product_tail(const LtGemm& g, void* native_stream) {
  if (g.out == DType::f16) return run<F16>(g, native_stream);
  if (g.out == DType::bf16) return run<Bf16>(g, native_stream);
  run<float>(g, native_stream);
}

}  // namespace shmap::cuda
