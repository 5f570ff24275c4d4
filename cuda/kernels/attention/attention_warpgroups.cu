// Attention of 16-bit floats with a depth of 65 to 128 on GPUs of compute capability 9.0, whose
// tensor cores reach their full speed by wgmma alone (Shah et al., FlashAttention-3).
//
// Two warpgroups have 64 rows of q each. Scores, exponentials and results stay in registers, as in
// attention_half.h, whose rows this kernel uses. While the tensor cores multiply the exponentials
// of a block of keys with v and q with the next keys, the threads wait only for the latter, and
// turn these scores into exponentials. Blocks of k and v are loaded one ahead.
#include <cuda_runtime.h>

#include "core/base/env.h"
#include "cuda/kernels/attention/attention_half.h"
#include "cuda/kernels/attention/warpgroup_products.h"

namespace shmap::cuda {

struct WarpgroupTiles {
  static constexpr int kDepth = 128;
  static constexpr int kThreads = 256;
  static constexpr int kRowTiles = 1;  // of 16 rows, for each warp
  static constexpr int kRows = 128, kColumns = 128;
  static constexpr int kBlockBytes = 128 * 2 * kDepth;  // of 128 rows of q, k or v
  // Shared memory for q, two blocks of k and two of v.
  static constexpr int kSharedBytes = 5 * kBlockBytes + kPanelAlignment;
};

namespace {

// Copies rows first … first + 127 of `from` to panels, with zeros beyond `rows` and `depth`.
template <class T>
__device__ __forceinline__ void load_panels(AsyncCopies& copies, unsigned char* to, const T* from,
                                            std::int64_t stride, int first, int rows, int depth,
                                            bool aligned) {
  constexpr int kPieces = WarpgroupTiles::kDepth / 8, kRows = 128;
  constexpr int kStep = WarpgroupTiles::kThreads / kPieces;
  const int piece = thread_now() % kPieces;
  int row = thread_now() / kPieces;
  const T* source = from + static_cast<std::int64_t>(first + row) * stride + piece * 8;
  if (aligned) {
    const bool inside = piece * 8 < depth;
    SHMAP_UNROLL
    for (int i = 0; i < kRows / kStep; ++i, row += kStep, source += kStep * stride)
      copies.copy16(to + piece_in_panels(row, piece, kRows), source, inside && first + row < rows);
    return;
  }
  SHMAP_KEEP_LOOP
  for (; row < kRows; row += kStep, source += kStep * stride) {
    std::uint32_t words[4] = {};
    if (first + row < rows) {
      SHMAP_UNROLL
      for (int e = 0; e < 8; ++e)
        if (piece * 8 + e < depth)
          words[e / 2] |= static_cast<std::uint32_t>(source[e].bits) << (16 * (e % 2));
    }
    *reinterpret_cast<uint4*>(to + piece_in_panels(row, piece, kRows)) =
        uint4{words[0], words[1], words[2], words[3]};
  }
}

template <class T, bool kPlain>
class Attender {
  using Tiles = WarpgroupTiles;
  using Rows = HalfRows<T, Tiles, kPlain>;

 public:
  __device__ __forceinline__ Attender(const AttentionCall& call, const AttentionBlock& block,
                                      unsigned char* shared)
      : call_(call),
        block_(block),
        q_(shared),
        k_(shared + Tiles::kBlockBytes),
        v_(shared + 3 * Tiles::kBlockBytes),
        rows_(block.row + thread_now() / 32 * 16) {
    load_panels<T>(copies_, q_, static_cast<const T*>(block.q), call.a.q.row, block.row,
                   static_cast<int>(call.a.q_rows), static_cast<int>(call.a.depth), call.q_aligned);
  }

  // Adds the contribution of key blocks first … last - 1.
  __device__ __forceinline__ void take(int first, int last) {
    if (first >= last) return;
    __syncthreads();  // the blocks before are no longer read
    load_k(first);
    await_copies();
    if (first + 1 < last) load_k(first + 1);
    load_v(first);
    typename Rows::Scores scores;
    typename Rows::Factors by;
    std::uint32_t weights[32];
    begin_products();
    start_scores<T, Tiles::kRows>(scores[0], my_q(), k_at(first));
    end_group();
    wait_for_groups<0>();
    rows_.hold(scores, call_, block_, first * Tiles::kColumns);
    if (rows_.find_factors(scores, call_.factor, by)) rows_.scale(by);
    rows_.exponentiate(scores, call_.factor);
    round(weights, scores);
    SHMAP_KEEP_LOOP
    for (int j = first; j + 1 < last; ++j) {
      await_copies();
      if (j + 2 < last) load_k(j + 2);
      load_v(j + 1);
      begin_products();
      start_scores<T, Tiles::kRows>(scores[0], my_q(), k_at(j + 1));
      end_group();
      start_weighted<T>(rows_.results()[0], weights, v_at(j));
      end_group();
      wait_for_groups<1>();
      rows_.hold(scores, call_, block_, (j + 1) * Tiles::kColumns);
      const bool changed = rows_.find_factors(scores, call_.factor, by);
      rows_.exponentiate(scores, call_.factor);
      wait_for_groups<0>();
      if (changed) rows_.scale(by);
      round(weights, scores);
    }
    await_copies();
    begin_products();
    start_weighted<T>(rows_.results()[0], weights, v_at(last - 1));
    end_group();
    wait_for_groups<0>();
  }
  __device__ __forceinline__ bool masked_counts() const { return rows_.masked_counts(call_); }
  __device__ __forceinline__ void store() { rows_.store(call_, block_); }

 private:
  __device__ __forceinline__ unsigned char* k_at(int j) const {
    return k_ + (j & 1) * Tiles::kBlockBytes;
  }
  __device__ __forceinline__ unsigned char* v_at(int j) const {
    return v_ + (j & 1) * Tiles::kBlockBytes;
  }
  __device__ __forceinline__ const unsigned char* my_q() const {
    return q_ + thread_now() / 128 * 64 * kPanelRowBytes;
  }
  __device__ __forceinline__ void load_k(int j) {
    load_panels<T>(copies_, k_at(j), static_cast<const T*>(block_.k), call_.a.k.row,
                   j * Tiles::kColumns, static_cast<int>(call_.a.k_rows),
                   static_cast<int>(call_.a.depth), call_.k_aligned);
  }
  __device__ __forceinline__ void load_v(int j) {
    load_panels<T>(copies_, v_at(j), static_cast<const T*>(block_.v), call_.a.v.row,
                   j * Tiles::kColumns, static_cast<int>(call_.a.k_rows),
                   static_cast<int>(call_.a.v_depth), call_.v_aligned);
  }
  // All copies that were begun have ended, and all threads have ended with the blocks before.
  __device__ __forceinline__ void await_copies() {
    copies_.wait();
    show_to_products();
    __syncthreads();
  }
  static __device__ __forceinline__ void round(std::uint32_t (&weights)[32],
                                               const typename Rows::Scores& scores) {
    SHMAP_UNROLL
    for (int w = 0; w < 32; ++w) {
      const float* value = scores[0][w / 2].value + 2 * (w % 2);
      weights[w] = round_pair<T>(value[0], value[1]);
    }
  }

  const AttentionCall& call_;
  const AttentionBlock& block_;
  unsigned char *const q_, *const k_, *const v_;
  AsyncCopies copies_;
  Rows rows_;
};

template <class T, bool kPlain>
__global__ void __launch_bounds__(WarpgroupTiles::kThreads, 1)
    attend_by_warpgroups(const SHMAP_CONSTANT AttentionCall call) {
  // For other GPUs the kernel is empty, and is not launched.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  after_predecessor();
  using Tiles = WarpgroupTiles;
  SHMAP_DYNAMIC_SHARED(memory);
  unsigned char* const shared =
      memory + (-reinterpret_cast<std::uintptr_t>(memory) & (kPanelAlignment - 1));
  __shared__ AttentionBlock block;
  if (threadIdx.x == 0) block = find_block<T>(call, Tiles::kRows, Tiles::kColumns);
  __syncthreads();
  Attender<T, kPlain> attender(call, block, shared);
  attender.take(block.begin, block.visible);
  // The columns that the causal mask hides, if the remaining scores of some row are so small that
  // masked scores count.
  if (block.visible < block.end && call.masked != kNoScore &&
      __syncthreads_or(attender.masked_counts()) != 0)
    attender.take(block.visible, block.end);
  attender.store();
#endif
}

template <class T>
void run(const AttentionCall& call, void* native_stream) {
  using Tiles = WarpgroupTiles;
  const Attention& a = call.a;
  const std::int64_t tiles = (a.q_rows + Tiles::kRows - 1) / Tiles::kRows;
  launch_with_shared("attention",
                     call.plain ? attend_by_warpgroups<T, true> : attend_by_warpgroups<T, false>,
                     grid_of("attention", tiles * a.outer * a.inner * a.shared),
                     dim3(Tiles::kThreads), Tiles::kSharedBytes, native_stream, call);
}

// Whether this build has code with wgmma, and the current GPU runs it.
bool has_wgmma() {
#if !defined(__CUDACC__)
  return true;  // the simulator runs the plain form
#elif defined(SHMAP_WGMMA)
  int gpu = 0, major = 0, minor = 0;
  return cudaGetDevice(&gpu) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu) == cudaSuccess &&
         major == 9 && minor == 0;
#else
  return false;
#endif
}

}  // namespace

bool takes_warpgroups(const AttentionCall& call) {
  return call.parts == 1 && env::text(env::Var::attention_kernel) == "own_wgmma" && has_wgmma();
}

void attention_by_warpgroups(const AttentionCall& call, void* native_stream) {
  if (call.a.dtype == DType::f16)
    run<F16>(call, native_stream);
  else
    run<Bf16>(call, native_stream);
}

}  // namespace shmap::cuda
