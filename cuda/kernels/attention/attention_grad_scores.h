// The code that the kernels of attention's derivatives share: the rows and columns of a block of
// threads, and the steps from a product q kᵀ to the gradient of a score. For the .cu files.
//
// A block has *own* rows, of k (for the cotangents of k and v) or of q (for the cotangent of q),
// whose results it sums while it passes over the rows of the other operand, its *stream*. Both
// cases are thus one kernel with the operands exchanged.
#pragma once
#include "cuda/kernels/attention/attention_grad_call.h"
#include "cuda/kernels/attention/attention_scores.h"

namespace shmap::cuda {

// The operand of the own rows: q or k.
enum class GradOf { queries, keys };

struct GradBlock {
  int outer, inner, member;  // member: the head of q; 0 if own rows are those of k
  int first;                 // the first own row
  // Tiles of the stream: begin … end - 1; the causal mask hides those before `visible`.
  int begin, visible, end;

  __device__ __forceinline__ std::int64_t at(std::int64_t by_outer, std::int64_t by_inner,
                                             std::int64_t by_member, int of_member) const {
    return outer * by_outer + inner * by_inner + of_member * by_member;
  }
  template <class T, class Operand>
  __device__ __forceinline__ const T* start(const Operand& x, int of_member) const {
    return static_cast<const T*>(x.data) + at(x.outer, x.inner, x.member, of_member);
  }
  __device__ __forceinline__ std::int64_t head(const Attention& a, int of_member) const {
    return at(a.inner * a.shared, a.shared, 1, of_member);
  }
};

// Finds the block of blockIdx.x; for each head, the rows with the most work come first.
template <GradOf kOf>
__device__ __forceinline__ GradBlock find_grad_block(const Attention& a, bool masked_counts,
                                                     int own_rows, int stream_rows) {
  GradBlock block;
  const int q_rows = static_cast<int>(a.q_rows), k_rows = static_cast<int>(a.k_rows);
  const int rows = kOf == GradOf::keys ? k_rows : q_rows;
  const int others = kOf == GradOf::keys ? q_rows : k_rows;
  const int tiles = (rows + own_rows - 1) / own_rows;
  const int tile = static_cast<int>(blockIdx.x) % tiles;
  int head = static_cast<int>(blockIdx.x) / tiles;
  block.member = 0;
  if constexpr (kOf == GradOf::queries) {
    block.member = head % static_cast<int>(a.shared);
    head /= static_cast<int>(a.shared);
  }
  block.inner = head % static_cast<int>(a.inner);
  block.outer = head / static_cast<int>(a.inner);
  block.first = (kOf == GradOf::queries && a.causal ? tiles - 1 - tile : tile) * own_rows;
  block.begin = block.visible = 0;
  block.end = (others + stream_rows - 1) / stream_rows;
  if (!a.causal) return block;
  if constexpr (kOf == GradOf::queries) {
    // The gradients of masked scores are zero.
    const int last = min(block.first + own_rows, q_rows) - 1;
    block.end = (columns_left(a, last) + stream_rows - 1) / stream_rows;
  } else {
    const std::int64_t row = max(std::int64_t{0}, block.first - a.causal_offset);
    block.visible = static_cast<int>(min(static_cast<std::int64_t>(block.end), row / stream_rows));
    block.begin = masked_counts ? 0 : block.visible;
  }
  return block;
}

// Passes over the tiles of a stream, one head of q after another.
template <GradOf kOf>
struct GradWalk {
  int member, tile;

  __device__ __forceinline__ GradWalk(const AttentionGradCall& call, const GradBlock& block,
                                      int stream_rows)
      : member(block.member), tile(block.begin) {
    if (block.begin == block.end) member = members(call, block);
    settle(call, block, stream_rows);
  }
  __device__ __forceinline__ bool is_done(const AttentionGradCall& call,
                                          const GradBlock& block) const {
    return member >= members(call, block);
  }
  __device__ __forceinline__ void advance(const AttentionGradCall& call, const GradBlock& block,
                                          int stream_rows) {
    step(block);
    settle(call, block, stream_rows);
  }

 private:
  static __device__ __forceinline__ int members(const AttentionGradCall& call,
                                                const GradBlock& block) {
    return kOf == GradOf::keys ? static_cast<int>(call.a.shared) : block.member + 1;
  }
  __device__ __forceinline__ void step(const GradBlock& block) {
    if (++tile < block.end) return;
    tile = block.begin;
    ++member;
  }
  // Skips hidden tiles in which masked scores do not count for any row.
  __device__ __forceinline__ void settle(const AttentionGradCall& call, const GradBlock& block,
                                         int stream_rows) {
    if constexpr (kOf == GradOf::keys) {
      if (!call.reads_masked_counts) return;
      while (!is_done(call, block) && tile < block.visible &&
             !masked_counts(call, block, stream_rows))
        step(block);
    }
  }
  __device__ __forceinline__ bool masked_counts(const AttentionGradCall& call,
                                                const GradBlock& block, int stream_rows) const {
    const int each = stream_rows / kMaskedRows, first = tile * each;
    const int* const counts = call.masked_counts + block.head(call.a, member) * call.masked_tiles;
    for (int i = first; i < first + each && i < call.masked_tiles; ++i)
      if (counts[i] != 0) return true;
    return false;
  }
};

// Computes one score's weight from its product of q and k, and the gradient of the product (divided
// by the scale) from the gradient of the weight.
template <class T>
class GradScores {
 public:
  // member: the head of q.
  __device__ __forceinline__ GradScores(const Attention& a, const GradBlock& block, int member)
      : a_(a),
        bias_(block.at(a.bias.outer, a.bias.inner, a.bias.member, member)),
        mask_(block.at(a.mask.outer, a.mask.inner, a.mask.member, member)) {}

  // plain: without bias and mask. hides: the score may be masked by its position, or not exist.
  // Returns false where the score does not depend on the product.
  __device__ __forceinline__ bool weigh(float& product, float most, float share, int row,
                                        int column, bool plain, bool hides) const {
    bool depends = true, is_there = true;
    float score;  // relative to the greatest
    if (plain) {
      score = __fmaf_rn(product, a_.scale, -most);
    } else {
      score = product * a_.scale;
      const std::int64_t r = min(row, static_cast<int>(a_.q_rows) - 1),
                         c = min(column, static_cast<int>(a_.k_rows) - 1);
      if (a_.bias.data != nullptr) {
        const std::int64_t at = bias_ + r * a_.bias.row + c * a_.bias.column;
        score += a_.bias_dtype == DType::f32
                     ? static_cast<const float*>(a_.bias.data)[at]
                     : scalar::widen(static_cast<const T*>(a_.bias.data)[at]);
      }
      if (a_.mask.data != nullptr &&
          static_cast<const std::uint8_t*>(
              a_.mask.data)[mask_ + r * a_.mask.row + c * a_.mask.column] == 0) {
        score = a_.masked;
        depends = false;
      }
      score -= most;
    }
    if (hides) {
      if (column >= columns_left(a_, row)) {
        score = a_.masked - most;
        depends = false;
      }
      is_there = row < a_.q_rows && column < a_.k_rows;
    }
    constexpr float kLog2e = 1.44269504088896340736f;
    product = is_there ? fast_exp2(score * kLog2e) * share : 0.0f;
    return depends && is_there;
  }

 private:
  const Attention& a_;
  std::int64_t bias_, mask_;
};

// Stores a pair of neighbours of a result's row: `column` (even) and the next; columns beyond
// `depth` are left out. to: the row.
template <class T>
__device__ __forceinline__ void store_gradients(T* to, int column, int depth, bool in_pairs,
                                                bool adds, float low, float high) {
  if (column >= depth) return;
  const bool both = column + 1 < depth;
  if (adds) {
    low += scalar::widen(to[column]);
    if (both) high += scalar::widen(to[column + 1]);
  }
  if (in_pairs) {
    struct alignas(2 * sizeof(T)) Pair {
      T first, second;
    };
    *reinterpret_cast<Pair*>(to + column) = {scalar::narrow<T>(low), scalar::narrow<T>(high)};
    return;
  }
  to[column] = scalar::narrow<T>(low);
  if (both) to[column + 1] = scalar::narrow<T>(high);
}

}  // namespace shmap::cuda
