#include "cuda/kernels/matmul/int_gemm.h"

#include "cuda/kernels/launch/launch.h"

namespace shmap::cuda {

namespace {

constexpr int kTile = 64;   // rows and columns of C for each block
constexpr int kDepth = 16;  // elements of k at a time
constexpr int kOwn = 4;     // rows and columns of C for each thread
constexpr int kSide = kTile / kOwn;

// Computes sums in the type Sum, which has at least as many bits as T: overflow only affects higher
// bits.
template <class T, class Sum, bool kLogical>
__global__ void multiply(IntGemm g) {
  after_predecessor();
  __shared__ T a_tile[kDepth][kTile + 1];
  __shared__ T b_tile[kDepth][kTile + 1];
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / kSide, column = thread % kSide;
  const std::int64_t across = (g.n + kTile - 1) / kTile, down = (g.m + kTile - 1) / kTile;
  for (std::int64_t tile = blockIdx.x; tile < across * down * g.batch; tile += gridDim.x) {
    const std::int64_t item = tile / (across * down);
    const std::int64_t i0 = tile / across % down * kTile, j0 = tile % across * kTile;
    const T* a = static_cast<const T*>(g.a) + item * g.a_item;
    const T* b = static_cast<const T*>(g.b) + item * g.b_item;
    T* c = static_cast<T*>(g.c) + item * g.c_item;
    Sum sums[kOwn][kOwn] = {};
    for (std::int64_t l0 = 0; l0 < g.k; l0 += kDepth) {
      for (int e = thread; e < kTile * kDepth; e += kSide * kSide) {
        // Neighbouring threads read neighbouring elements.
        const int i = g.a_column == 1 ? e / kDepth : e % kTile;
        const int l = g.a_column == 1 ? e % kDepth : e / kTile;
        a_tile[l][i] =
            i0 + i < g.m && l0 + l < g.k ? a[(i0 + i) * g.a_row + (l0 + l) * g.a_column] : T(0);
        const int j = g.b_column == 1 ? e % kTile : e / kDepth;
        const int h = g.b_column == 1 ? e / kTile : e % kDepth;
        b_tile[h][j] =
            j0 + j < g.n && l0 + h < g.k ? b[(l0 + h) * g.b_row + (j0 + j) * g.b_column] : T(0);
      }
      __syncthreads();
      for (int l = 0; l < kDepth; ++l) {
        for (int i = 0; i < kOwn; ++i) {
          const T x = a_tile[l][row + i * kSide];
          for (int j = 0; j < kOwn; ++j) {
            const T y = b_tile[l][column + j * kSide];
            if (kLogical)
              sums[i][j] |= Sum(x != 0) & Sum(y != 0);
            else
              sums[i][j] += Sum(x) * Sum(y);
          }
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < kOwn; ++i) {
      for (int j = 0; j < kOwn; ++j) {
        const std::int64_t r = i0 + row + i * kSide, s = j0 + column + j * kSide;
        if (r < g.m && s < g.n) c[r * g.c_row + s] = static_cast<T>(sums[i][j]);
      }
    }
  }
}

template <class T, class Sum, bool kLogical>
void run(const IntGemm& g, void* native_stream) {
  const std::int64_t tiles = ((g.m + kTile - 1) / kTile) * ((g.n + kTile - 1) / kTile) * g.batch;
  if (tiles == 0) return;
  launch("int_gemm", multiply<T, Sum, kLogical>, grid_for(tiles, 1), dim3(kSide * kSide),
         native_stream, g);
}

}  // namespace

void int_gemm(const IntGemm& g, int itemsize, bool logical, void* native_stream) {
  if (logical) return run<std::uint8_t, std::uint32_t, true>(g, native_stream);
  switch (itemsize) {
    case 1:
      return run<std::uint8_t, std::uint32_t, false>(g, native_stream);
    case 2:
      return run<std::uint16_t, std::uint32_t, false>(g, native_stream);
    case 4:
      return run<std::uint32_t, std::uint32_t, false>(g, native_stream);
    default:
      return run<std::uint64_t, std::uint64_t, false>(g, native_stream);
  }
}

}  // namespace shmap::cuda
