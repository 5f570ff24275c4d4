#include "cuda/kernels/matmul/small_gemm.h"

#include "cuda/kernels/matmul/own_gemm.h"

namespace shmap::cuda {

namespace {

constexpr int kWarp = 32, kWarps = 4;
constexpr int kDepth = 16;  // elements of k for each warp at a time

// Rows and columns of C for each block, and of these for each thread of each warp.
template <int kTileRows, int kTileColumns, int kThreadRows, int kThreadColumns>
struct Tile {
  static constexpr int kRows = kTileRows, kColumns = kTileColumns;
  static constexpr int kOwnRows = kThreadRows, kOwnColumns = kThreadColumns;
  static_assert(kRows / kOwnRows * (kColumns / kOwnColumns) == kWarp);
};
using SmallTile = Tile<8, 16, 2, 2>;
using LargeTile = Tile<16, 32, 4, 4>;

// Up to so many small tiles a GPU computes at once. (H100: at 128 x 128 results, 128 tiles, small
// tiles took 1.6 us and large ones 2.0; at 256 x 256, 512 tiles, 4.2 and 3.1.)
constexpr std::int64_t kMostSmallTiles = 264;

constexpr double kMostFlops = 1 << 25;
constexpr std::int64_t kMostDepth = 512;
constexpr std::int64_t kMostBlocks = 65535;  // of a grid along y, and along z

template <class T, class Out, class Sum, class Tile, Lies kA, Lies kB>
__global__ void __launch_bounds__(kWarp* kWarps) multiply(const OwnGemm p) {
  after_predecessor();
  constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns;
  constexpr int kOwnRows = Tile::kOwnRows, kOwnColumns = Tile::kOwnColumns;
  __shared__ __align__(16) Sum a_tile[kWarps][kDepth][kRows + kGemmGap];
  __shared__ __align__(16) Sum b_tile[kWarps][kDepth][kColumns + kGemmGap];
  __shared__ Sum parts[kWarps][kRows * kColumns];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp, warp = thread / kWarp;
  const int i0 = static_cast<int>(blockIdx.y) * kRows, j0 = static_cast<int>(blockIdx.x) * kColumns;
  const int row = lane / (kColumns / kOwnColumns) * kOwnRows;
  const int column = lane % (kColumns / kOwnColumns) * kOwnColumns;
  const T* const a = item_of(static_cast<const T*>(p.a), p.a_item);
  const T* const b = item_of(static_cast<const T*>(p.b), p.b_item);
  Sum sums[kOwnRows][kOwnColumns] = {};
  for (int l0 = warp * kDepth; l0 < p.k; l0 += kWarps * kDepth) {
    GemmPanel<T, Sum, kRows, kDepth, kWarp, kA> of_a;
    GemmPanel<T, Sum, kColumns, kDepth, kWarp, kB> of_b;
    of_a.load(a, p.a_column, p.a_row, l0, i0, p.k, p.m, lane);
    of_b.load(b, p.b_row, p.b_column, l0, j0, p.k, p.n, lane);
    __syncwarp();
    of_a.store(a_tile[warp], p.a_column, lane);
    of_b.store(b_tile[warp], p.b_row, lane);
    __syncwarp();
    SHMAP_UNROLL
    for (int l = 0; l < kDepth; ++l) {
      SHMAP_UNROLL
      for (int i = 0; i < kOwnRows; ++i) {
        SHMAP_UNROLL
        for (int j = 0; j < kOwnColumns; ++j)
          sums[i][j] = fused_add(a_tile[warp][l][row + i], b_tile[warp][l][column + j], sums[i][j]);
      }
    }
  }
  SHMAP_UNROLL
  for (int i = 0; i < kOwnRows; ++i) {
    SHMAP_UNROLL
    for (int j = 0; j < kOwnColumns; ++j)
      parts[warp][(row + i) * kColumns + column + j] = sums[i][j];
  }
  __syncthreads();
  for (int e = thread; e < kRows * kColumns; e += kWarp * kWarps) {
    const int i = i0 + e / kColumns, j = j0 + e % kColumns;
    if (i >= p.m || j >= p.n) continue;
    Sum sum = parts[0][e];
    SHMAP_UNROLL
    for (int w = 1; w < kWarps; ++w) sum += parts[w][e];
    item_of(static_cast<Out*>(p.c), p.c_item)[i * p.c_row + j] = finished<Out>(p, i, j, sum);
  }
}

template <class T, class Out, class Sum, class Tile, Lies kA, Lies kB>
void enqueue(const LtGemm& g, const OwnGemm& p, void* native_stream) {
  const dim3 grid(static_cast<unsigned>(tiles_of(g.n, Tile::kColumns)),
                  static_cast<unsigned>(tiles_of(g.m, Tile::kRows)),
                  static_cast<unsigned>(g.batch));
  launch("small product", multiply<T, Out, Sum, Tile, kA, kB>, grid, dim3(kWarp * kWarps),
         native_stream, p);
}

template <class T, class Out, class Sum, class Tile>
void run_tile(const LtGemm& g, const OwnGemm& p, void* native_stream) {
  const Lies a = lies_a<T>(g, p), b = lies_b<T>(g, p);
  if (a == Lies::oddly || b == Lies::oddly)
    return enqueue<T, Out, Sum, Tile, Lies::oddly, Lies::oddly>(g, p, native_stream);
  if (a == Lies::along_k && b == Lies::along_k)
    return enqueue<T, Out, Sum, Tile, Lies::along_k, Lies::along_k>(g, p, native_stream);
  if (a == Lies::along_k)
    return enqueue<T, Out, Sum, Tile, Lies::along_k, Lies::across_k>(g, p, native_stream);
  if (b == Lies::along_k)
    return enqueue<T, Out, Sum, Tile, Lies::across_k, Lies::along_k>(g, p, native_stream);
  return enqueue<T, Out, Sum, Tile, Lies::across_k, Lies::across_k>(g, p, native_stream);
}

template <class T, class Out, class Sum>
void run(const LtGemm& g, void* native_stream) {
  const OwnGemm p = own_gemm(g);
  const std::int64_t small =
      tiles_of(g.m, SmallTile::kRows) * tiles_of(g.n, SmallTile::kColumns) * g.batch;
  if (small <= kMostSmallTiles)
    run_tile<T, Out, Sum, SmallTile>(g, p, native_stream);
  else
    run_tile<T, Out, Sum, LargeTile>(g, p, native_stream);
}

}  // namespace

bool is_small(const LtGemm& g) {
  const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) *
                       static_cast<double>(g.k) * static_cast<double>(g.batch);
  return flops <= kMostFlops && g.k <= kMostDepth && g.batch <= kMostBlocks &&
         tiles_of(g.m, SmallTile::kRows) <= kMostBlocks && !g.tf32;
}

void small_gemm(const LtGemm& g, void* native_stream) {
  const bool wide = g.out == f32;
  switch (g.dtype) {
    case DType::f32:
      return run<float, float, float>(g, native_stream);
    case DType::f64:
      return run<double, double, double>(g, native_stream);
    case DType::f16:
      return wide ? run<F16, float, float>(g, native_stream)
                  : run<F16, F16, float>(g, native_stream);
    case DType::bf16:
      return wide ? run<Bf16, float, float>(g, native_stream)
                  : run<Bf16, Bf16, float>(g, native_stream);
    default:
      throw_no_kernel("small product");
  }
}

}  // namespace shmap::cuda
