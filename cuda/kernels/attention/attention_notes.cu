// Computes the data of each row of q that the backward pass needs before it recomputes scores: a
// warp handles one row at a time.
#include "cuda/kernels/attention/attention_grad_scores.h"

namespace shmap::cuda {

namespace {

constexpr int kWarps = 4, kThreadsOfNotes = 32 * kWarps;

// Out: the dtype of the result.
template <class Out>
__global__ void make_notes(const SHMAP_CONSTANT AttentionGradCall call) {
  after_predecessor();
  const Attention& a = call.a;
  const AttentionOperand& c = call.cotangent;
  const std::int64_t head = blockIdx.x / call.masked_tiles, member = head % a.shared,
                     inner = head / a.shared % a.inner, outer = head / a.shared / a.inner;
  const std::int64_t tile = blockIdx.x % call.masked_tiles * kMaskedRows;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const Out* const out = static_cast<const Out*>(a.out) + outer * a.out_outer +
                         inner * a.out_inner + member * a.out_member;
  const Out* const cotangent =
      static_cast<const Out*>(c.data) + outer * c.outer + inner * c.inner + member * c.member;
  const float* const sums =
      a.sums + outer * a.sums_outer + inner * a.sums_inner + member * a.sums_member;
  bool masked_count = false;
  SHMAP_KEEP_LOOP
  for (int i = static_cast<int>(threadIdx.x) / 32; i < kMaskedRows; i += kWarps) {
    const std::int64_t row = tile + i;
    if (row >= a.q_rows) break;
    float mean = 0.0f;
    for (int d = lane; d < a.v_depth; d += 32)
      mean = __fmaf_rn(scalar::widen(out[row * a.out_row + d]),
                       scalar::widen(cotangent[row * c.row + d]), mean);
    mean = sum_of<32>(mean);
    const float most = sums[row];
    if (lane == 0)
      call.notes[head * a.q_rows + row] = {most, 1.0f / sums[a.q_rows + row], mean, 0.0f};
    constexpr float kLog2e = 1.44269504088896340736f;
    // A NaN counts as nonzero: it is the result for a row whose columns are all masked by
    // -infinity.
    masked_count = masked_count || !(fast_exp2((a.masked - most) * kLog2e) == 0.0f);
  }
  const int any = __syncthreads_or(masked_count);
  if (threadIdx.x == 0) call.masked_counts[blockIdx.x] = any;
}

}  // namespace

void attention_notes(const AttentionGradCall& call, void* native_stream) {
  const Attention& a = call.a;
  const auto kernel = a.out_dtype == f32   ? make_notes<float>
                      : a.out_dtype == f16 ? make_notes<F16>
                                           : make_notes<Bf16>;
  launch("attention_notes", kernel,
         grid_of("attention_notes", a.outer * a.inner * a.shared * call.masked_tiles),
         dim3(kThreadsOfNotes), native_stream, call);
}

}  // namespace shmap::cuda
