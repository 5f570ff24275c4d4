#include "cuda/kernels/random/threefry.h"

#include <algorithm>

#include "cuda/kernels/elementwise/map.h"
#include "cuda/kernels/embedded/threefry_hash.h"
#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/launch.h"

namespace shmap::cuda {
namespace {

struct Dims {
  std::int64_t size, rank;
  std::int64_t extent[kMaxRank], stride[kMaxRank];
};

template <class T>
__device__ __forceinline__ T element(const Source<T>& source, std::int64_t i) {
  return source.kind == Operand::whole ? source.data[i] : source.value;
}

// The number of elements that a thread computes one after another, so that several hashes share the
// work that is done once, such as reading the key from memory.
constexpr int kTogether = 4;

template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Together {
  T item[n];
};

// `groups` of n elements each, which lie in one row.
template <class T, int n>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(std::int64_t groups, T* out, Source<Key> given_key,
                Source<std::int64_t> given_first, const SHMAP_CONSTANT Dims dims) {
  after_predecessor();
  const Source<Key> key = with_value(given_key);
  const Source<std::int64_t> first = with_value(given_first);
  const bool one = key.kind != Operand::whole;
  for (std::int64_t g = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; g < groups;
       g += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t i = g * n, k = one ? 0 : i / dims.size;
    std::int64_t at = i - k * dims.size, index = element(first, k);
    for (int d = static_cast<int>(dims.rank) - 1; d > 0; --d) {
      index += at % dims.extent[d] * dims.stride[d];
      at /= dims.extent[d];
    }
    index += at * dims.stride[0];
    const Key of = element(key, k);
    Together<T, n> bits;
    for (int j = 0; j < n; ++j)
      bits.item[j] = scalar::random_bits<T>(of, static_cast<unsigned long>(index + j));
    reinterpret_cast<Together<T, n>*>(out)[g] = bits;
  }
}

// The same for one key and one dim, where an element's index needs no division. A thread computes
// several groups: as many blocks as a GPU of 132 multiprocessors runs at once read the key.
constexpr int kLineBlocksEach = 8;
constexpr unsigned kLineBlocks = 132 * kLineBlocksEach;

template <class T, int n>
__global__ void __launch_bounds__(kThreads, kLineBlocksEach)
    fill_line(std::int64_t groups, T* out, Source<Key> given_key,
              Source<std::int64_t> given_first) {
  after_predecessor();
  const Key key = with_value(given_key).value;
  const std::int64_t first = with_value(given_first).value;
  for (std::int64_t g = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; g < groups;
       g += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t index = first + g * n;
    Together<T, n> bits;
    SHMAP_UNROLL
    for (int j = 0; j < n; ++j)
      bits.item[j] = scalar::random_bits<T>(key, static_cast<unsigned long>(index + j));
    reinterpret_cast<Together<T, n>*>(out)[g] = bits;
  }
}

template <class T>
void run_fill(const RandomFill& f, void* stream) {
  const std::int64_t items = f.keys * f.size;
  Dims dims = {};
  dims.size = f.size;
  dims.rank = f.rank;
  for (int d = 0; d < f.rank; ++d) {
    dims.extent[d] = f.extent[d];
    dims.stride[d] = f.stride[d];
  }
  const std::int64_t zero = 0;
  const Operand first = f.first.data ? f.first : Operand{&zero, Operand::literal};
  const auto run = [&](auto kernel, std::int64_t groups) {
    launch("random_bits", kernel, grid_for(groups), dim3(kThreads), stream, groups,
           static_cast<T*>(f.out), source_of<Key>(f.key), source_of<std::int64_t>(first), dims);
  };
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(f.out) % alignof(Together<T, kTogether>) == 0;
  const bool line = f.rank == 1 && f.key.kind != Operand::whole && first.kind != Operand::whole;
  if (aligned && line && items % kTogether == 0) {
    const std::int64_t groups = items / kTogether;
    dim3 grid = grid_for(groups);
    grid.x = std::min(grid.x, kLineBlocks);
    launch("random_bits", fill_line<T, kTogether>, grid, dim3(kThreads), stream, groups,
           static_cast<T*>(f.out), source_of<Key>(f.key), source_of<std::int64_t>(first));
  } else if (aligned && f.extent[f.rank - 1] % kTogether == 0) {
    run(fill_kernel<T, kTogether>, items / kTogether);
  } else {
    run(fill_kernel<T, 1>, items);
  }
}

__global__ void __launch_bounds__(kThreads)
    fold_in_kernel(std::int64_t n, Key* out, Source<Key> given_key,
                   Source<unsigned int> given_data) {
  after_predecessor();
  const Source<Key> key = with_value(given_key);
  const Source<unsigned int> data = with_value(given_data);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * kThreads)
    out[i] = scalar::threefry(element(key, i), 0u, element(data, i));
}

__global__ void __launch_bounds__(kThreads)
    pairs_kernel(std::int64_t n, unsigned int* out0, unsigned int* out1,
                 Source<unsigned int> given_k0, Source<unsigned int> given_k1,
                 Source<unsigned int> given_x0, Source<unsigned int> given_x1) {
  after_predecessor();
  const Source<unsigned int> k0 = with_value(given_k0), k1 = with_value(given_k1),
                             x0 = with_value(given_x0), x1 = with_value(given_x1);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += std::int64_t{gridDim.x} * kThreads) {
    const Key x =
        scalar::threefry({element(k0, i), element(k1, i)}, element(x0, i), element(x1, i));
    out0[i] = x.word0;
    out1[i] = x.word1;
  }
}

}  // namespace

void random_fill(const RandomFill& fill, void* stream) {
  if (fill.keys * fill.size <= 0) return;
  if (!with_unsigned(fill.dtype, [&]<class T>() { run_fill<T>(fill, stream); }))
    run_fill<Key>(fill, stream);
}

void random_fold_in(Operand key, Operand data, void* out, std::int64_t n, void* stream) {
  if (n <= 0) return;
  launch("random_fold_in", fold_in_kernel, grid_for(n), dim3(kThreads), stream, n,
         static_cast<Key*>(out), source_of<Key>(key), source_of<unsigned int>(data));
}

void threefry_pairs(Operand k0, Operand k1, Operand x0, Operand x1, void* out0, void* out1,
                    std::int64_t n, void* stream) {
  if (n <= 0) return;
  launch("threefry2x32", pairs_kernel, grid_for(n), dim3(kThreads), stream, n,
         static_cast<unsigned int*>(out0), static_cast<unsigned int*>(out1),
         source_of<unsigned int>(k0), source_of<unsigned int>(k1), source_of<unsigned int>(x0),
         source_of<unsigned int>(x1));
}

}  // namespace shmap::cuda
