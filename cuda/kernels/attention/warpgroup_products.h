// Matrix products of 16-bit floats by a warpgroup, the 128 threads of four warps: of 64 rows, with
// the other operand in shared memory, summed in f32. For the .cu files.
//
// Products run while the threads go on: start_…() hands them to the tensor cores, end_group()
// closes a group of them, and wait_for_groups<n>() waits until at most the last n groups still run.
// Until then, registers that a product reads or writes must not be touched. All threads of the
// warpgroup call each function together. A warp has the rows of its number, 16 of them, in the
// layouts of cuda/kernels/attention/mma.h.
//
// Rows of shared memory are kept in panels of 64 values, 128 bytes: in each panel the rows follow
// each other, and the 16-byte piece c of row r is at position c ^ (r mod 8), which is the pattern
// that the PTX ISA names 128-byte swizzle. A panel starts at a multiple of 1024 bytes.
//
// The instruction is wgmma, which GPUs of compute capability 9.0 alone have. Beside it stands the
// same operation in plain C++, for tests.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/kernels/attention/mma.h"
#include "cuda/kernels/launch/launch.h"

namespace shmap::cuda {

inline constexpr int kPanelValues = 64, kPanelRowBytes = 2 * kPanelValues;
inline constexpr int kPanelAlignment = 1024;

// The offset of the 16-byte piece `piece` of a row, in panels of `rows` rows.
__device__ __forceinline__ int piece_in_panels(int row, int piece, int rows) {
  return piece / 8 * rows * kPanelRowBytes + row * kPanelRowBytes +
         (((piece & 7) ^ (row & 7)) << 4);
}

// To be called before the first product that reads registers, or shared memory, which this thread
// has written.
__device__ __forceinline__ void begin_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void end_group() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int n>
__device__ __forceinline__ void wait_for_groups() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
#endif
}
// Lets products see what this thread has written to shared memory; before the barrier that makes it
// visible to the others.
__device__ __forceinline__ void show_to_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

namespace warpgroup_detail {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A matrix descriptor (PTX ISA, "Matrix descriptor"): where a matrix begins, the bytes between its
// panels, and between its groups of eight rows.
__device__ __forceinline__ std::uint64_t describe(const unsigned char* begin, int between_panels) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  const auto address = static_cast<std::uint64_t>(__cvta_generic_to_shared(begin));
  return (address & 0x3ffff) >> 4 | static_cast<std::uint64_t>(between_panels >> 4) << 16 |
         std::uint64_t{8 * kPanelRowBytes >> 4} << 32 | kSwizzle128;
}

#define SHMAP_TILE(n) \
  "+f"(sums[n].value[0]), "+f"(sums[n].value[1]), "+f"(sums[n].value[2]), "+f"(sums[n].value[3])
#define SHMAP_TILES                                                                               \
  SHMAP_TILE(0), SHMAP_TILE(1), SHMAP_TILE(2), SHMAP_TILE(3), SHMAP_TILE(4), SHMAP_TILE(5),       \
      SHMAP_TILE(6), SHMAP_TILE(7), SHMAP_TILE(8), SHMAP_TILE(9), SHMAP_TILE(10), SHMAP_TILE(11), \
      SHMAP_TILE(12), SHMAP_TILE(13), SHMAP_TILE(14), SHMAP_TILE(15)
#define SHMAP_TILE_NAMES                                                             \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

// sums = (adds: +=) rows · othersᵀ over 16 values of each.
template <class T>
__device__ __forceinline__ void rows_by_rows(TileC (&sums)[16], std::uint64_t rows,
                                             std::uint64_t others, int adds) {
#define SHMAP_PRODUCT(type)                                                             \
  asm volatile(                                                                         \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"                                \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " SHMAP_TILE_NAMES \
      ", %64, %65, adds, 1, 1, 0, 0;\n}"                                                \
      : SHMAP_TILES                                                                     \
      : "l"(rows), "l"(others), "r"(adds))
  if constexpr (std::is_same_v<T, F16>)
    SHMAP_PRODUCT("f16");
  else
    SHMAP_PRODUCT("bf16");
#undef SHMAP_PRODUCT
}

// sums += weights · others, of 16 rows of the latter.
template <class T>
__device__ __forceinline__ void weights_by_rows(TileC (&sums)[16], const std::uint32_t* weights,
                                                std::uint64_t others) {
#define SHMAP_PRODUCT(type)                                                             \
  asm volatile(                                                                         \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, 1, 0;\n"                                  \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " SHMAP_TILE_NAMES \
      ", {%64, %65, %66, %67}, %68, adds, 1, 1, 1;\n}"                                  \
      : SHMAP_TILES                                                                     \
      : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "l"(others))
  if constexpr (std::is_same_v<T, F16>)
    SHMAP_PRODUCT("f16");
  else
    SHMAP_PRODUCT("bf16");
#undef SHMAP_PRODUCT
}
#undef SHMAP_TILE_NAMES
#undef SHMAP_TILES
#undef SHMAP_TILE

#else

// Value d of a row in panels of `rows` rows.
template <class T>
__device__ inline float value_at(const unsigned char* panels, int rows, int row, int d) {
  std::uint16_t bits;
  memcpy(&bits, panels + piece_in_panels(row, d / 8, rows) + d % 8 * 2, 2);
  return scalar::widen(T{bits});
}

// Calls take(value, row, column) for each of this thread's sums; row: in the warp's 16 rows.
template <class Take>
__device__ inline void for_each_sum(TileC (&sums)[16], Take take) {
  const int g = mma_detail::lane() / 4, t = mma_detail::lane() % 4;
  for (int n = 0; n < 16; ++n)
    for (int i = 0; i < 4; ++i) take(sums[n].value[i], g + i / 2 * 8, 8 * n + 2 * t + i % 2);
}

#endif

}  // namespace warpgroup_detail

// Starts scores = rows · othersᵀ, of rows of 128 values. rows: the 64 rows of the warpgroup, which
// begin at a multiple of eight, in panels of kRows rows; others: 128 rows in panels of 128.
template <class T, int kRows>
__device__ __forceinline__ void start_scores(TileC (&scores)[16], const unsigned char* rows,
                                             const unsigned char* others) {
  constexpr int kOthers = 128;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  SHMAP_UNROLL
  for (int d = 0; d < 8; ++d) {
    const int within = d % 4 * 32;  // of a row of a panel
    warpgroup_detail::rows_by_rows<T>(
        scores, warpgroup_detail::describe(rows + d / 4 * kRows * kPanelRowBytes + within, 16),
        warpgroup_detail::describe(others + d / 4 * kOthers * kPanelRowBytes + within, 16), d != 0);
  }
#else
  const int first = mma_detail::warp() % 4 * 16;
  warpgroup_detail::for_each_sum(scores, [&](float& sum, int row, int column) {
    sum = 0.0f;
    for (int d = 0; d < 128; ++d)
      sum = __fmaf_rn(warpgroup_detail::value_at<T>(rows, kRows, first + row, d),
                      warpgroup_detail::value_at<T>(others, kOthers, column, d), sum);
  });
#endif
}

// Starts sums += weights · others. weights: 64 × 128, of which word 4 c + i of a thread is word i
// of TileA of columns 16 c and following; others: 128 rows of 128 values in panels of 128.
template <class T>
__device__ __forceinline__ void start_weighted(TileC (&sums)[16],
                                               const std::uint32_t (&weights)[32],
                                               const unsigned char* others) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  SHMAP_UNROLL
  for (int c = 0; c < 8; ++c)
    warpgroup_detail::weights_by_rows<T>(
        sums, weights + 4 * c,
        warpgroup_detail::describe(others + 16 * c * kPanelRowBytes, 128 * kPanelRowBytes));
#else
  __shared__ std::uint32_t words[8][32][32];
  auto& mine = words[mma_detail::warp()];
  for (int w = 0; w < 32; ++w) mine[mma_detail::lane()][w] = weights[w];
  __syncwarp();
  warpgroup_detail::for_each_sum(sums, [&](float& sum, int row, int column) {
    for (int c = 0; c < 128; ++c) {
      const int from = row % 8 * 4 + c % 8 / 2, word = c / 16 * 4 + c % 16 / 8 * 2 + row / 8;
      sum = __fmaf_rn(mma_detail::half_of<T>(mine[from][word], c % 2),
                      warpgroup_detail::value_at<T>(others, 128, c, column), sum);
    }
  });
  __syncwarp();
#endif
}

}  // namespace shmap::cuda
