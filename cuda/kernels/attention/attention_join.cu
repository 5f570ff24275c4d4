// The second step of attention with split keys: combines the results of the parts, each relative to
// its own greatest score, in the order of the parts.
#include "cuda/kernels/attention/attention_scores.h"
#include "cuda/kernels/launch/launch.h"

namespace shmap::cuda {

namespace {

template <class T>
__global__ void join(const SHMAP_CONSTANT AttentionCall call) {
  after_predecessor();
  const Attention& a = call.a;
  const std::int64_t items = a.outer * a.inner * a.shared * a.q_rows * a.v_depth;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < items;
       i += step) {
    const std::int64_t row = i / a.v_depth, column = i % a.v_depth;
    RunningRow running;  // of all parts so far
    float value = 0.0f;
    for (int part = 0; part < call.parts; ++part) {
      const PartialRow partial(call, part, row);
      const float greatest = partial.greatest_and_sum[0];
      value *= running.take(greatest, call.factor);
      const float weight = fast_exp2((greatest - running.base()) * call.factor);
      running.sum = __fmaf_rn(weight, partial.greatest_and_sum[1], running.sum);
      value = __fmaf_rn(weight, partial.values[column], value);
    }
    const std::int64_t head = row / a.q_rows, member = head % a.shared,
                       inner = head / a.shared % a.inner, outer = head / a.shared / a.inner;
    const std::int64_t at = outer * a.out_outer + inner * a.out_inner + member * a.out_member +
                            row % a.q_rows * a.out_row + column;
    if (column == 0)
      store_sums(call, outer * a.sums_outer + inner * a.sums_inner + member * a.sums_member,
                 row % a.q_rows, running.greatest, running.sum);
    const float result = value * (1.0f / running.sum);
    if (a.out_dtype == DType::f32)
      static_cast<float*>(a.out)[at] = result;
    else
      static_cast<T*>(a.out)[at] = scalar::narrow<T>(result);
  }
}

}  // namespace

void attention_join(const AttentionCall& call, void* native_stream) {
  const Attention& a = call.a;
  const auto kernel = a.dtype == f16 ? join<F16> : a.dtype == bf16 ? join<Bf16> : join<float>;
  launch("attention_join", kernel, grid_for(a.outer * a.inner * a.shared * a.q_rows * a.v_depth),
         dim3(kThreads), native_stream, call);
}

}  // namespace shmap::cuda
