#include "cuda/kernels/attention/attention_grad.h"

#include <cmath>

#include "cuda/kernels/attention/attention_call.h"
#include "cuda/kernels/attention/attention_grad_call.h"
#include "cuda/kernels/attention/library_attention.h"

namespace shmap::cuda {

namespace {

std::int64_t heads_of(const Attention& a) { return a.outer * a.inner * a.shared; }
std::int64_t masked_tiles(const Attention& a) { return (a.q_rows + kMaskedRows - 1) / kMaskedRows; }

bool is_plain(const Attention& a) { return a.bias.data == nullptr && a.mask.data == nullptr; }

// True if masked scores may count in a row because its other scores are small. Without a bias and a
// mask each row has the first column, whose score is assumed to be greater than this bound.
bool masked_may_count(const Attention& a) {
  constexpr float kBelowScores = -1e30f;
  return a.causal && (!is_plain(a) || a.causal_offset < 0 || a.masked > kBelowScores);
}

}  // namespace

std::int64_t attention_grad_scratch(const Attention& a) {
  return heads_of(a) * (a.q_rows * static_cast<std::int64_t>(sizeof(AttentionNote)) +
                        masked_tiles(a) * static_cast<std::int64_t>(sizeof(int)));
}

void attention_grad(const AttentionGrad& grad, void* native_stream) {
  check_attention("attention_grad", grad.a);
  if (!is_empty(grad.a) && !library_attention_grad(grad, native_stream))
    own_attention_grad(grad, native_stream);
}

void own_attention_grad(const AttentionGrad& grad, void* native_stream) {
  const Attention& a = grad.a;
  AttentionGradCall call;
  call.a = a;
  call.cotangent = grad.cotangent;
  call.q_bar = grad.q_bar;
  call.k_bar = grad.k_bar;
  call.v_bar = grad.v_bar;
  call.adds = grad.adds;
  call.a.causal_offset = clamped_offset(a);
  call.plain = is_plain(a);
  call.reads_masked_counts = masked_may_count(a);
  const int item = static_cast<int>(itemsize(a.dtype));
  const auto aligned = [&](const AttentionOperand& x, std::int64_t depth) {
    return lies_in_pieces(a, x, depth, item, 16);
  };
  call.q_aligned = aligned(a.q, a.depth);
  call.k_aligned = aligned(a.k, a.depth);
  call.v_aligned = aligned(a.v, a.v_depth);
  call.cotangent_aligned = a.out_dtype == a.dtype && aligned(grad.cotangent, a.v_depth);
  const auto in_pairs = [&](const AttentionGradient& x, std::int64_t depth) {
    return lies_in_pieces(a, {x.data, x.outer, x.inner, x.row, x.member}, depth, item, 2 * item);
  };
  call.in_pairs = in_pairs(grad.q_bar, a.depth) && in_pairs(grad.k_bar, a.depth) &&
                  in_pairs(grad.v_bar, a.v_depth);
  call.notes = static_cast<AttentionNote*>(grad.scratch);
  call.masked_counts = reinterpret_cast<int*>(call.notes + heads_of(a) * a.q_rows);
  call.masked_tiles = masked_tiles(a);
  attention_notes(call, native_stream);
  const auto run = a.dtype == f16    ? attention_grad_f16
                   : a.dtype == bf16 ? attention_grad_bf16
                                     : attention_grad_f32;
  run(call, native_stream);
}

void attention_tangent(const AttentionTangent& tangent, void* native_stream) {
  check_attention("attention_tangent", tangent.a);
  if (is_empty(tangent.a)) return;
  AttentionTangent call = tangent;
  call.a.causal_offset = clamped_offset(tangent.a);
  attention_tangents(call, native_stream);
}

}  // namespace shmap::cuda
