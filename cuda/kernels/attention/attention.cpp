#include "cuda/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/base/float_format.h"
#include "cuda/kernels/attention/attention_call.h"
#include "cuda/kernels/attention/library_attention.h"
#include "cuda/kernels/launch/launch.h"
#include "shmap/error.h"

namespace shmap::cuda {

namespace {

constexpr std::int64_t kMostDepth = 256;
constexpr std::int64_t kMostRows = std::int64_t{1} << 30;  // rows are counted in 32 bits
constexpr std::int64_t kLeastTile = 16;                    // rows of a block, in every kernel

// Splits the keys into parts until there are about two blocks for each multiprocessor of a large
// GPU, with at least four key blocks in each part.
struct Sharing {
  std::int64_t parts, blocks;  // blocks of keys in each part

  explicit Sharing(const Attention& a) {
    const std::int64_t most = std::max(a.depth, a.v_depth);
    const int depth = most <= 64 ? 64 : most <= 128 ? 128 : 256;
    const AttentionTiles tiles =
        a.dtype == f32 ? f32_attention_tiles(depth) : half_attention_tiles(depth);
    const std::int64_t rows =
        (a.q_rows + tiles.rows - 1) / tiles.rows * a.outer * a.inner * a.shared;
    const std::int64_t all = (a.k_rows + tiles.columns - 1) / tiles.columns;
    constexpr std::int64_t kWanted = 256, kLeastBlocks = 4;
    const std::int64_t want =
        rows >= kWanted / 2 ? 1 : std::min((kWanted + rows - 1) / rows, all / kLeastBlocks);
    blocks = (all + std::max<std::int64_t>(want, 1) - 1) / std::max<std::int64_t>(want, 1);
    parts = (all + blocks - 1) / blocks;
  }
};

}  // namespace

bool takes_attention(const Attention& a) {
  const bool dtypes = (is_half(a.dtype) || a.dtype == f32) &&
                      (a.out_dtype == a.dtype || a.out_dtype == f32) &&
                      (a.bias_dtype == a.dtype || a.bias_dtype == f32);
  const bool extents = a.outer >= 0 && a.inner >= 0 && a.shared >= 0 && a.q_rows >= 1 &&
                       a.q_rows <= kMostRows && a.k_rows >= 1 && a.k_rows <= kMostRows &&
                       a.depth >= 1 && a.depth <= kMostDepth && a.v_depth >= 1 &&
                       a.v_depth <= kMostDepth;
  if (!dtypes || !extents) return false;
  const std::int64_t tiles = (std::max(a.q_rows, a.k_rows) + kLeastTile - 1) / kLeastTile;
  return is_empty(a) || (a.outer <= kMostGridBlocks && a.inner <= kMostGridBlocks / a.outer &&
                         a.shared <= kMostGridBlocks / a.outer / a.inner / tiles);
}

std::int64_t attention_scratch(const Attention& a) {
  if (!takes_attention(a) || is_empty(a)) return 0;
  const std::int64_t parts = Sharing(a).parts;
  return parts == 1 ? 0 : parts * a.outer * a.inner * a.shared * a.q_rows * (a.v_depth + 2) * 4;
}

bool is_empty(const Attention& a) { return a.outer == 0 || a.inner == 0 || a.shared == 0; }

bool lies_in_pieces(const Attention& a, const AttentionOperand& x, std::int64_t depth, int item,
                    int bytes) {
  const auto whole = [&](std::int64_t extent, std::int64_t stride) {
    return extent == 1 || stride * item % bytes == 0;
  };
  return reinterpret_cast<std::uintptr_t>(x.data) % static_cast<std::uintptr_t>(bytes) == 0 &&
         depth * item % bytes == 0 && whole(a.outer, x.outer) && whole(a.inner, x.inner) &&
         whole(a.shared, x.member) && x.row * item % bytes == 0;
}

void check_attention(const char* what, const Attention& a) {
  if (takes_attention(a)) return;
  throw TypeError(std::string(what) + ": no kernel takes " + to_string(a.dtype) + " of depth " +
                  std::to_string(a.depth) + " and " + std::to_string(a.v_depth) + ", with " +
                  std::to_string(a.q_rows) + " queries and " + std::to_string(a.k_rows) +
                  " keys, a result of " + to_string(a.out_dtype) + " and a bias of " +
                  to_string(a.bias_dtype) +
                  "; it is made for f16, bf16 and f32, and a depth of at most 256");
}

std::int64_t clamped_offset(const Attention& a) {
  return std::clamp(a.causal_offset, -kMostRows - 1, kMostRows);
}

void attention(const Attention& a, void* native_stream) {
  check_attention("attention", a);
  if (!is_empty(a) && !library_attention(a, native_stream)) own_attention(a, native_stream);
}

void own_attention(const Attention& a, void* native_stream) {
  constexpr float kLog2e = 1.44269504088896340736f;
  AttentionCall call;
  call.a = a;
  call.a.causal_offset = clamped_offset(a);
  call.plain =
      a.bias.data == nullptr && a.mask.data == nullptr && a.scale > 0.0f && a.scale <= 1.0f;
  call.factor = call.plain ? a.scale * kLog2e : kLog2e;
  call.masked = a.masked;
  // A finite masked score stays finite in the units of `plain`: a row of such scores gives the mean
  // of v.
  if (call.plain && std::isfinite(a.masked)) {
    constexpr float most = std::numeric_limits<float>::max();
    call.masked = std::fmin(std::fmax(a.masked / a.scale, -most), most);
  }
  const int item = static_cast<int>(itemsize(a.dtype));
  const auto aligned = [&](const AttentionOperand& x, std::int64_t depth) {
    return lies_in_pieces(a, x, depth, item, 16);
  };
  call.q_aligned = aligned(a.q, a.depth);
  call.k_aligned = aligned(a.k, a.depth);
  call.v_aligned = aligned(a.v, a.v_depth);
  const int out_item = static_cast<int>(itemsize(a.out_dtype));
  call.out_in_pairs = lies_in_pieces(a, {a.out, a.out_outer, a.out_inner, a.out_row, a.out_member},
                                     a.v_depth, out_item, 2 * out_item);
  const Sharing sharing(a);
  const bool shared = a.scratch != nullptr && sharing.parts > 1;
  call.parts = shared ? static_cast<int>(sharing.parts) : 1;
  call.part_blocks = shared ? static_cast<int>(sharing.blocks) : std::numeric_limits<int>::max();
  const auto run = a.dtype == f16    ? attention_f16
                   : a.dtype == bf16 ? attention_bf16
                                     : attention_f32;
  run(call, native_stream);
  if (shared) attention_join(call, native_stream);
}

}  // namespace shmap::cuda
