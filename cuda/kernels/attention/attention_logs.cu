// Converts the softmax statistics of rows between two forms: this library's kernels keep the
// greatest score and the sum of exponentials, cuDNN keeps the logarithm of the sum.
#include "cuda/kernels/attention/attention_logs.h"
#include "cuda/kernels/launch/launch.h"

namespace shmap::cuda {

namespace {

// If From, writes a.sums from `logs`; else writes `logs` from a.sums.
template <bool From>
__global__ void convert(const SHMAP_CONSTANT Attention a, float* logs) {
  after_predecessor();
  const std::int64_t items = a.outer * a.inner * a.shared * a.q_rows;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < items;
       i += step) {
    const std::int64_t head = i / a.q_rows, row = i % a.q_rows, member = head % a.shared,
                       inner = head / a.shared % a.inner, outer = head / a.shared / a.inner;
    float* const sums =
        a.sums + outer * a.sums_outer + inner * a.sums_inner + member * a.sums_member + row;
    if (From) {
      sums[0] = logs[i];
      sums[a.q_rows] = 1.0f;
    } else {
      logs[i] = sums[0] + logf(sums[a.q_rows]);
    }
  }
}

template <bool From>
void run(const Attention& a, float* logs, void* native_stream) {
  launch("attention_logs", convert<From>, grid_for(a.outer * a.inner * a.shared * a.q_rows),
         dim3(kThreads), native_stream, a, logs);
}

}  // namespace

void attention_logs(const Attention& a, float* logs, void* native_stream) {
  run<false>(a, logs, native_stream);
}

void sums_of_logs(const Attention& a, float* logs, void* native_stream) {
  run<true>(a, logs, native_stream);
}

}  // namespace shmap::cuda
