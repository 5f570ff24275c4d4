// The code that attention's kernels share: the rows and columns of a block, the steps from a
// product q kᵀ to the softmax, and the softmax's running sums. For the .cu files.
//
// The greatest score of a row is -infinity as long as all its scores so far are masked by
// -infinity; its exponentials and their sum are then 0 instead of NaN. If that holds for the whole
// row, 0 / 0 gives the NaN that is the softmax of such a row. The maximum ignores a NaN among the
// scores; the NaN reaches the sum and so the whole row. +infinity reaches them too, because its
// difference from itself is NaN.
#pragma once
#include <cuda_runtime.h>
#include <math.h>

#include <cstdint>

#include "cuda/kernels/attention/attention_call.h"
#include "cuda/kernels/embedded/scalar.h"
#include "cuda/kernels/embedded/warp.h"
#include "cuda/kernels/launch/launch.h"

// SHMAP_KEEP_LOOP before a loop keeps the compiler from unrolling it.
#if defined(__CUDACC__)
#define SHMAP_KEEP_LOOP _Pragma("unroll 1")
#else
#define SHMAP_KEEP_LOOP
#endif

namespace shmap::cuda {

inline constexpr float kNoScore = -HUGE_VALF;  // -infinity

// 2^x, to 2 units in the last place; 0 instead of subnormal results.
__device__ __forceinline__ float fast_exp2(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = exp2f(x);
  return y < 1.17549435e-38f ? 0.0f : y;
#endif
}

// threadIdx.x, read again at each call, so that values derived from it are computed where they are
// used instead of being kept in registers during a loop.
__device__ __forceinline__ int thread_now() {
#if defined(__CUDA_ARCH__)
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
#else
  return static_cast<int>(threadIdx.x);
#endif
}

// The number of columns of a row that the causal mask leaves, counted from the first.
__device__ __forceinline__ int columns_left(const Attention& a, int row) {
  if (!a.causal) return static_cast<int>(a.k_rows);
  return static_cast<int>(max(std::int64_t{0}, min(a.k_rows, row + a.causal_offset + 1)));
}

// The rows of a block of threads and the columns that it visits, in key blocks. Kernels keep it in
// shared memory, where it uses no registers.
struct AttentionBlock {
  const void *q, *k, *v;  // the first row of each
  int outer, inner, member;
  int row;  // the first row
  // Key blocks begin … end - 1; the causal mask leaves a column of some row in those before
  // `visible`.
  int begin, visible, end;
  int part;

  // The offset for this block's head, given the strides between heads.
  __device__ __forceinline__ std::int64_t at(std::int64_t by_outer, std::int64_t by_inner,
                                             std::int64_t by_member) const {
    return outer * by_outer + inner * by_inner + member * by_member;
  }
};

// Finds the block of blockIdx.x; for each head, the rows with the most work come first.
template <class T>
__device__ __forceinline__ AttentionBlock find_block(const AttentionCall& call, int rows,
                                                     int columns) {
  const Attention& a = call.a;
  AttentionBlock block;
  const int q_rows = static_cast<int>(a.q_rows), k_rows = static_cast<int>(a.k_rows);
  const int tiles = (q_rows + rows - 1) / rows;
  block.part = static_cast<int>(blockIdx.x) % call.parts;
  const int tile = static_cast<int>(blockIdx.x) / call.parts % tiles;
  const int head = static_cast<int>(blockIdx.x) / call.parts / tiles;
  block.member = head % static_cast<int>(a.shared);
  block.inner = head / static_cast<int>(a.shared) % static_cast<int>(a.inner);
  block.outer = head / static_cast<int>(a.shared) / static_cast<int>(a.inner);
  const auto start = [&](const AttentionOperand& x) {
    return static_cast<const T*>(x.data) + block.at(x.outer, x.inner, x.member);
  };
  block.q = start(a.q);
  block.k = start(a.k);
  block.v = start(a.v);
  block.row = (a.causal ? tiles - 1 - tile : tile) * rows;
  const int blocks = (k_rows + columns - 1) / columns;
  block.begin = block.part * call.part_blocks;
  block.end = block.visible = min(blocks - block.begin, call.part_blocks) + block.begin;
  // The keys of a row may be divided; a block does not know then whether masked scores count beside
  // the scores of the other blocks.
  if (a.causal && (call.parts == 1 || call.masked == kNoScore)) {
    const int last = min(block.row + rows, q_rows) - 1;
    const int visible = (columns_left(a, last) + columns - 1) / columns;
    block.visible = max(block.begin, min(block.end, visible));
  }
  return block;
}

// The numbers added to the scores of one row, and the mask of the row. T: the dtype of q.
template <class T>
class ScoreRow {
 public:
  // `row` may lie beyond the last row, whose bias and mask it then uses.
  __device__ __forceinline__ ScoreRow(const AttentionCall& call, const AttentionBlock& block,
                                      int row)
      : call_(call), left_(columns_left(call.a, row)) {
    const Attention& a = call.a;
    const std::int64_t at = min(static_cast<std::int64_t>(row), a.q_rows - 1);
    bias_ = block.at(a.bias.outer, a.bias.inner, a.bias.member) + at * a.bias.row;
    mask_ = block.at(a.mask.outer, a.mask.inner, a.mask.member) + at * a.mask.row;
  }

  // Turns n products of the row into held scores: score(e) is the product of column(e), which is
  // replaced. `hides`: some of the columns may be hidden by the causal mask, or not exist. Each
  // step is done for all n scores, so that their loads overlap.
  template <bool kPlain, int n, class Score, class Column>
  __device__ __forceinline__ void hold(Score score, Column column, bool hides) const {
    const Attention& a = call_.a;
    const int last = static_cast<int>(a.k_rows) - 1;
    if constexpr (!kPlain) {
      SHMAP_UNROLL
      for (int e = 0; e < n; ++e) score(e) *= a.scale;
      const auto add = [&](const auto* bias) {
        SHMAP_UNROLL
        for (int e = 0; e < n; ++e)
          score(e) += scalar::widen(bias[bias_ + min(column(e), last) * a.bias.column]);
      };
      if (a.bias.data != nullptr) {
        if (a.bias_dtype == DType::f32)
          add(static_cast<const float*>(a.bias.data));
        else
          add(static_cast<const T*>(a.bias.data));
      }
      if (a.mask.data != nullptr) {
        const auto* const mask = static_cast<const std::uint8_t*>(a.mask.data) + mask_;
        SHMAP_UNROLL
        for (int e = 0; e < n; ++e)
          if (mask[min(column(e), last) * a.mask.column] == 0) score(e) = call_.masked;
      }
    }
    if (!hides) return;
    SHMAP_UNROLL
    for (int e = 0; e < n; ++e)
      score(e) = column(e) > last ? kNoScore : column(e) >= left_ ? call_.masked : score(e);
  }

 private:
  const AttentionCall& call_;
  int left_;
  std::int64_t bias_, mask_;
};

// The running softmax of a row, over the columns that this thread handles.
struct RunningRow {
  float greatest = kNoScore;  // of the row
  float sum = 0.0f;           // of this thread's exponentials

  // Includes the greatest score of more columns; returns the factor by which all earlier sums must
  // be multiplied. The exponential of a score is then fast_exp2((score - base()) * factor).
  __device__ __forceinline__ float take(float more, float factor) {
    const float before = greatest;
    greatest = fmaxf(before, more);
    const float by = fast_exp2((before - base()) * factor);
    sum *= by;
    return by;
  }
  __device__ __forceinline__ float base() const { return greatest == kNoScore ? 0.0f : greatest; }
  // True if a masked score counts beside the greatest score.
  __device__ __forceinline__ bool masked_counts(float masked, float factor) const {
    return fast_exp2((masked - greatest) * factor) > 0.0f;
  }
};

// The maximum and the sum over `lanes` neighbouring lanes (a power of two), in all of these lanes.
template <int lanes>
__device__ __forceinline__ float greatest_of(float value) {
  SHMAP_UNROLL
  for (int distance = 1; distance < lanes; distance *= 2)
    value = fmaxf(value, shuffle_xor(value, distance));
  return value;
}
template <int lanes>
__device__ __forceinline__ float sum_of(float value) {
  SHMAP_UNROLL
  for (int distance = 1; distance < lanes; distance *= 2) value += shuffle_xor(value, distance);
  return value;
}

// The memory for a part's results of one row of the call, and the data of these results.
struct PartialRow {
  float* values;  // v_depth of them
  float* greatest_and_sum;

  __device__ __forceinline__ PartialRow(const AttentionCall& call, int part, std::int64_t row) {
    const Attention& a = call.a;
    const std::int64_t rows = a.outer * a.inner * a.shared * a.q_rows, at = part * rows + row;
    float* const scratch = static_cast<float*>(a.scratch);
    values = scratch + at * a.v_depth;
    greatest_and_sum = scratch + call.parts * rows * a.v_depth + 2 * at;
  }
  __device__ __forceinline__ PartialRow(const AttentionCall& call, const AttentionBlock& block,
                                        int row)
      : PartialRow(call, block.part,
                   block.at(call.a.inner * call.a.shared, call.a.shared, 1) * call.a.q_rows + row) {
  }
  // Stores two neighbours; columns beyond v_depth are left out.
  __device__ __forceinline__ void store_pair(const AttentionCall& call, int column, float low,
                                             float high) const {
    if (column < call.a.v_depth) values[column] = low;
    if (column + 1 < call.a.v_depth) values[column + 1] = high;
  }
  __device__ __forceinline__ void store(float greatest, float sum) const {
    greatest_and_sum[0] = greatest;
    greatest_and_sum[1] = sum;
  }
};

// Stores a row's greatest score and sum to Attention::sums, unless that is null. `head`: the offset
// of the head's sums.
__device__ __forceinline__ void store_sums(const AttentionCall& call, std::int64_t head,
                                           std::int64_t row, float greatest, float sum) {
  const Attention& a = call.a;
  if (a.sums == nullptr) return;
  float* const to = a.sums + head + row;
  // The held value of a masked score may be rounded, which would show in its difference from
  // `masked`.
  to[0] = !call.plain ? greatest : greatest == call.masked ? a.masked : greatest * a.scale;
  to[a.q_rows] = sum;
}

// Stores n pairs of neighbours of the row of the result that begins at `start`: value(e, 0) and
// value(e, 1) at column(e), which is even. Columns beyond v_depth are left out.
template <class T, int n, class Value, class Column>
__device__ __forceinline__ void store_row(const AttentionCall& call, std::int64_t start,
                                          Value value, Column column) {
  const int depth = static_cast<int>(call.a.v_depth);
  const auto store = [&]<class Out>(Out* out) {
    struct alignas(2 * sizeof(Out)) Pair {
      Out first, second;
    };
    if (call.out_in_pairs) {
      SHMAP_UNROLL
      for (int e = 0; e < n; ++e) {
        if (column(e) < depth)
          *reinterpret_cast<Pair*>(out + column(e)) = {scalar::narrow<Out>(value(e, 0)),
                                                       scalar::narrow<Out>(value(e, 1))};
      }
    } else {
      SHMAP_UNROLL
      for (int e = 0; e < n; ++e) {
        if (column(e) < depth) out[column(e)] = scalar::narrow<Out>(value(e, 0));
        if (column(e) + 1 < depth) out[column(e) + 1] = scalar::narrow<Out>(value(e, 1));
      }
    }
  };
  if (call.a.out_dtype == DType::f32)
    store(static_cast<float*>(call.a.out) + start);
  else if constexpr (sizeof(T) == 2)
    store(static_cast<T*>(call.a.out) + start);
}

}  // namespace shmap::cuda
