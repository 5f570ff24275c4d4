#include "cuda/kernels/matmul/tile_gemm.h"

#include "cuda/kernels/matmul/own_gemm.h"

namespace shmap::cuda {

namespace {

constexpr int kTile = 64;       // rows and columns of C for each block
constexpr int kTileDepth = 16;  // elements of k at a time
constexpr int kTileThreads = 128;
// Two groups of two warps compute the whole tile, each for half of the elements of k. A thread has
// 8 rows, and 8 columns in two pieces of 4: for 64 products it reads 16 numbers of shared memory,
// in 4 accesses, which leave the multipliers busy.
constexpr int kGroup = kTileThreads / 2, kGroupDepth = kTileDepth / 2;
constexpr int kOwn = 8, kPiece = 4;

constexpr double kLeastFlops = 1 << 24, kMostTileFlops = double(1LL << 33);
constexpr std::int64_t kMostGrid = 65535;  // blocks along y and z

using Piece = GemmPack<float, kPiece>;

struct Fragment {
  float at[kOwn];

  __device__ __forceinline__ void read(const float* first, const float* second) {
    const Piece low = *reinterpret_cast<const Piece*>(first);
    const Piece high = *reinterpret_cast<const Piece*>(second);
    SHMAP_UNROLL
    for (int e = 0; e < kPiece; ++e) {
      at[e] = low.at[e];
      at[kPiece + e] = high.at[e];
    }
  }
};

// Stores a piece of a row of C. aligned: C lies as pieces of 16 bytes.
__device__ __forceinline__ void store_piece(const OwnGemm& p, int i, int j, const Piece& sums,
                                            bool aligned) {
  if (i >= p.m || j >= p.n) return;
  float* const c = item_of(static_cast<float*>(p.c), p.c_item) + i * p.c_row + j;
  const bool plain = p.d == nullptr && p.bias == nullptr && p.function == Activation::none;
  if (aligned && plain) {
    *reinterpret_cast<Piece*>(c) = sums;
    return;
  }
  Piece out;
  SHMAP_UNROLL
  for (int e = 0; e < kPiece; ++e)
    if (j + e < p.n) out.at[e] = finished<float>(p, i, j + e, sums.at[e]);
  if (aligned) {
    *reinterpret_cast<Piece*>(c) = out;
    return;
  }
  SHMAP_UNROLL
  for (int e = 0; e < kPiece; ++e)
    if (j + e < p.n) c[e] = out.at[e];
}

template <Lies kA, Lies kB>
__global__ void __launch_bounds__(kTileThreads, 4)
    multiply_tiles(const SHMAP_CONSTANT OwnGemm p, bool aligned) {
  after_predecessor();
  // The panels of A and B, two of each: one is multiplied while the other is filled. Afterwards
  // what the groups give each other.
  struct Panels {
    float a[2][kTileDepth][kTile + kGemmGap], b[2][kTileDepth][kTile + kGemmGap];
  };
  union Shared {
    Panels panels;
    float sums[2][kOwn / 2][kOwn][kGroup];
  };
  __shared__ __align__(16) Shared shared;
  Panels& panels = shared.panels;
  const int thread = static_cast<int>(threadIdx.x), group = thread / kGroup;
  const int lane = thread % 32, warp = thread / 32 % 2;
  const int i0 = static_cast<int>(blockIdx.y) * kTile, j0 = static_cast<int>(blockIdx.x) * kTile;
  const int row = warp * 32 + lane / 8 * kOwn, column = lane % 8 * kPiece;
  const float* const a = item_of(static_cast<const float*>(p.a), p.a_item);
  const float* const b = item_of(static_cast<const float*>(p.b), p.b_item);
  GemmPanel<float, float, kTile, kTileDepth, kTileThreads, kA> of_a;
  GemmPanel<float, float, kTile, kTileDepth, kTileThreads, kB> of_b;
  const auto load = [&](int l0) {
    of_a.load(a, p.a_column, p.a_row, l0, i0, p.k, p.m, thread);
    of_b.load(b, p.b_row, p.b_column, l0, j0, p.k, p.n, thread);
  };
  const auto store = [&](int to) {
    of_a.store(panels.a[to], p.a_column, thread);
    of_b.store(panels.b[to], p.b_row, thread);
  };
  float sums[kOwn][kOwn] = {};
  load(0);
  store(0);
  __syncthreads();
  int now = 0;
  for (int l0 = 0; l0 < p.k; l0 += kTileDepth) {
    const bool more = l0 + kTileDepth < p.k;
    if (more) load(l0 + kTileDepth);
    SHMAP_UNROLL
    for (int step = 0; step < kGroupDepth; ++step) {
      const int l = group * kGroupDepth + step;
      Fragment x, y;
      x.read(&panels.a[now][l][row], &panels.a[now][l][row + kPiece]);
      y.read(&panels.b[now][l][column], &panels.b[now][l][column + kTile / 2]);
      SHMAP_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        SHMAP_UNROLL
        for (int j = 0; j < kOwn; ++j) sums[i][j] = fused_add(x.at[i], y.at[j], sums[i][j]);
      }
    }
    now ^= 1;
    if (more) store(now);
    __syncthreads();
  }
  // Each group finishes half of the rows, and gives the other its sums of the other half.
  constexpr int kHalf = kOwn / 2;
  const int partner = thread % kGroup;
  SHMAP_UNROLL
  for (int i = 0; i < kHalf; ++i) {
    SHMAP_UNROLL
    for (int j = 0; j < kOwn; ++j)
      shared.sums[group][i][j][partner] = group == 0 ? sums[kHalf + i][j] : sums[i][j];
  }
  __syncthreads();
  SHMAP_UNROLL
  for (int i = 0; i < kHalf; ++i) {
    SHMAP_UNROLL
    for (int half = 0; half < 2; ++half) {
      Piece piece;
      SHMAP_UNROLL
      for (int e = 0; e < kPiece; ++e) {
        const int j = half * kPiece + e;
        const float other = shared.sums[1 - group][i][j][partner];
        // The first group's part comes first.
        piece.at[e] = group == 0 ? sums[i][j] + other : other + sums[kHalf + i][j];
      }
      store_piece(p, i0 + row + group * kHalf + i, j0 + column + half * kTile / 2, piece, aligned);
    }
  }
}

template <Lies kA, Lies kB>
void enqueue_tiles(const LtGemm& g, const OwnGemm& p, void* native_stream) {
  const dim3 grid(static_cast<unsigned>(tiles_of(g.n, kTile)),
                  static_cast<unsigned>(tiles_of(g.m, kTile)), static_cast<unsigned>(g.batch));
  const bool aligned = lies(p.c, false, 1, g.n, g.ldc, p.c_item, sizeof(float)) != Lies::oddly;
  launch("product of tiles", multiply_tiles<kA, kB>, grid, dim3(kTileThreads), native_stream, p,
         aligned);
}

}  // namespace

bool may_be_tiled(const LtGemm& g) {
  if (g.dtype != DType::f32 || g.tf32 || g.batch > kMostGrid) return false;
  if (tiles_of(g.m, kTile) > kMostGrid) return false;
  const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) *
                       static_cast<double>(g.k) * static_cast<double>(g.batch);
  if (flops < kLeastFlops || flops > kMostTileFlops || g.k > (1 << 20)) return false;
  const OwnGemm p = own_gemm(g);
  return lies_a<float>(g, p) != Lies::oddly && lies_b<float>(g, p) != Lies::oddly;
}

void tile_gemm(const LtGemm& g, void* native_stream) {
  const OwnGemm p = own_gemm(g);
  if (!g.trans_a && !g.trans_b)
    return enqueue_tiles<Lies::along_k, Lies::across_k>(g, p, native_stream);
  if (!g.trans_a) return enqueue_tiles<Lies::along_k, Lies::along_k>(g, p, native_stream);
  if (!g.trans_b) return enqueue_tiles<Lies::across_k, Lies::across_k>(g, p, native_stream);
  enqueue_tiles<Lies::across_k, Lies::along_k>(g, p, native_stream);
}

}  // namespace shmap::cuda
