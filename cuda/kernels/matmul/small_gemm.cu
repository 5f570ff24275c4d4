#include "cuda/kernels/matmul/small_gemm.h"

#include "cuda/kernels/launch/dispatch.h"
#include "cuda/kernels/launch/launch.h"
#include "cuda/kernels/matmul/activated.h"

namespace shmap::cuda {

namespace {

constexpr int kWarp = 32, kWarps = 4;
constexpr int kDepth = 16;  // elements of k for each warp at a time
constexpr int kGap = 4;     // between rows in shared memory, so that writes of a column spread
static_assert(kWarp % kDepth == 0);

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

// Beyond these, cuBLASLt was faster, or was not compared. (H200, chains of products in a graph, us
// here and there: f32 of 256 x 256 x 256 4.4 and 6.7; bf16 and f64, for which cuBLASLt has tensor
// cores, of 128 x 128 x 128 2.35 and 2.40, 2.5 and 3.0, of 160 x 160 x 160 3.2 and 2.6, 3.9 and
// 3.4; f16 of 64 x 64 x 64 1.96 and 2.23, of 96 x 96 x 96 2.7 and 2.4.)
struct Limits {
  double flops;
  std::int64_t depth;
};
Limits limits_of(DType dtype) {
  if (dtype == f32) return {1 << 25, 512};
  return dtype == f16 ? Limits{1 << 21, 64} : Limits{1 << 22, 128};
}

constexpr std::int64_t kMostBlocks = 65535;  // of a grid along y, and along z

// A product as the kernel sees it. Strides are in elements: from one row or column to the next, and
// from one item of the batch to the next.
struct Small {
  const void* a;
  const void* b;
  void* c;
  const void* d;
  const void* bias;
  std::int64_t a_row, a_column, a_item;
  std::int64_t b_row, b_column, b_item;
  std::int64_t c_row, c_item, d_row, d_item;
  int m, n, k;
  Activation function;
  unsigned char unused[3];  // so that all bytes of the parameter are initialised
};

__device__ __forceinline__ float fused_add(float x, float y, float sum) {
  return __fmaf_rn(x, y, sum);
}
__device__ __forceinline__ double fused_add(double x, double y, double sum) {
  return __fma_rn(x, y, sum);
}

template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};

// How a panel of an operand lies in memory: as pieces of 16 bytes along one of its dims, or element
// by element.
enum class Lies : unsigned char { along_k, across_k, oddly };

// A warp's panel of an operand, kDepth elements of k by kWide rows of A or columns of B. load()
// reads it from memory, so that all loads are under way before the first is waited for; store()
// writes it to shared memory, as [k][row or column].
template <class T, class Sum, int kWide, Lies kLies>
struct Panel {
  static constexpr int kPack = kLies == Lies::oddly ? 1 : 16 / static_cast<int>(sizeof(T));
  static constexpr int kPacks = kWide * kDepth / kPack, kLoads = (kPacks + kWarp - 1) / kWarp;
  using Packed = Pack<T, kPack>;
  Packed read[kLoads];

  // The place in the panel of a lane's load `e`: of its first element.
  __device__ static void place(int e, int lane, bool along_k, int& l, int& i) {
    const int at = e * kWarp + lane, line = (along_k ? kDepth : kWide) / kPack;
    const int fast = at % line * kPack, slow = at / line;
    l = along_k ? fast : slow;
    i = along_k ? slow : fast;
  }
  __device__ static bool along(std::int64_t k_stride) {
    return kLies == Lies::oddly ? k_stride == 1 : kLies == Lies::along_k;
  }

  // `data`: of the item; `l0` and `i0`: where the panel begins; `k` and `wide`: the extents, beyond
  // which there are zeros.
  __device__ void load(const T* data, std::int64_t k_stride, std::int64_t i_stride, int l0, int i0,
                       int k, int wide, int lane) {
    SHMAP_UNROLL
    for (int e = 0; e < kLoads; ++e) {
      int l, i;
      place(e, lane, along(k_stride), l, i);
      read[e] = Packed{};
      if ((kPacks % kWarp == 0 || e * kWarp + lane < kPacks) && l0 + l < k && i0 + i < wide)
        read[e] =
            *reinterpret_cast<const Packed*>(data + (l0 + l) * k_stride + (i0 + i) * i_stride);
    }
  }
  __device__ void store(Sum (&to)[kDepth][kWide + kGap], std::int64_t k_stride, int lane) const {
    SHMAP_UNROLL
    for (int e = 0; e < kLoads; ++e) {
      if (kPacks % kWarp != 0 && e * kWarp + lane >= kPacks) continue;
      int l, i;
      const bool along_k = along(k_stride);
      place(e, lane, along_k, l, i);
      SHMAP_UNROLL
      for (int p = 0; p < kPack; ++p)
        to[along_k ? l + p : l][along_k ? i : i + p] = scalar::widen(read[e].at[p]);
    }
  }
};

// The address of the block's item of the batch.
template <class T>
__device__ __forceinline__ T* item_of(T* data, std::int64_t stride) {
  return data + static_cast<std::int64_t>(blockIdx.z) * stride;
}

template <class T, class Out, class Sum, class Tile, Lies kA, Lies kB>
__global__ void __launch_bounds__(kWarp* kWarps) multiply(const Small p) {
  after_predecessor();
  constexpr int kRows = Tile::kRows, kColumns = Tile::kColumns;
  constexpr int kOwnRows = Tile::kOwnRows, kOwnColumns = Tile::kOwnColumns;
  __shared__ __align__(16) Sum a_tile[kWarps][kDepth][kRows + kGap];
  __shared__ __align__(16) Sum b_tile[kWarps][kDepth][kColumns + kGap];
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
    Panel<T, Sum, kRows, kA> of_a;
    Panel<T, Sum, kColumns, kB> of_b;
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
    if (p.d != nullptr)
      sum += scalar::widen(item_of(static_cast<const Out*>(p.d), p.d_item)[i * p.d_row + j]);
    if (p.bias != nullptr) sum += scalar::widen(static_cast<const Out*>(p.bias)[j]);
    item_of(static_cast<Out*>(p.c), p.c_item)[i * p.c_row + j] =
        scalar::narrow<Out>(activated(sum, p.function));
  }
}

std::int64_t tiles(std::int64_t extent, int tile) { return (extent + tile - 1) / tile; }

// How an operand lies that is contiguous along k or across it, with rows `ld` elements apart.
Lies lies(const void* data, bool along_k, std::int64_t k, std::int64_t wide, std::int64_t ld,
          std::int64_t item, std::int64_t itemsize) {
  const std::int64_t contiguous = along_k ? k : wide;
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data) % 16);
  const bool in_pieces = address == 0 && (contiguous * itemsize) % 16 == 0 &&
                         (ld * itemsize) % 16 == 0 && (item * itemsize) % 16 == 0;
  return !in_pieces ? Lies::oddly : along_k ? Lies::along_k : Lies::across_k;
}

template <class T, class Out, class Sum, class Tile, Lies kA, Lies kB>
void enqueue(const LtGemm& g, const Small& p, void* native_stream) {
  const dim3 grid(static_cast<unsigned>(tiles(g.n, Tile::kColumns)),
                  static_cast<unsigned>(tiles(g.m, Tile::kRows)), static_cast<unsigned>(g.batch));
  launch("small product", multiply<T, Out, Sum, Tile, kA, kB>, grid, dim3(kWarp * kWarps),
         native_stream, p);
}

template <class T, class Out, class Sum, class Tile>
void run_tile(const LtGemm& g, const Small& p, void* native_stream) {
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const Lies a = lies(p.a, !g.trans_a, g.k, g.m, g.lda, p.a_item, size);
  const Lies b = lies(p.b, g.trans_b, g.k, g.n, g.ldb, p.b_item, size);
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
  const bool many = g.batch != 1;
  const Small p = {g.a,
                   g.b,
                   g.c,
                   g.d,
                   g.bias,
                   g.trans_a ? 1 : g.lda,
                   g.trans_a ? g.lda : 1,
                   many ? g.stride_a : 0,
                   g.trans_b ? 1 : g.ldb,
                   g.trans_b ? g.ldb : 1,
                   many ? g.stride_b : 0,
                   g.ldc,
                   many ? g.stride_c : 0,
                   g.ldd,
                   many ? g.stride_d : 0,
                   static_cast<int>(g.m),
                   static_cast<int>(g.n),
                   static_cast<int>(g.k),
                   g.function,
                   {}};
  const std::int64_t small =
      tiles(g.m, SmallTile::kRows) * tiles(g.n, SmallTile::kColumns) * g.batch;
  if (small <= kMostSmallTiles)
    run_tile<T, Out, Sum, SmallTile>(g, p, native_stream);
  else
    run_tile<T, Out, Sum, LargeTile>(g, p, native_stream);
}

}  // namespace

bool is_small(const LtGemm& g) {
  const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) *
                       static_cast<double>(g.k) * static_cast<double>(g.batch);
  const Limits most = limits_of(g.dtype);
  return flops <= most.flops && g.k <= most.depth && g.batch <= kMostBlocks &&
         tiles(g.m, SmallTile::kRows) <= kMostBlocks && !g.tf32;
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
