#include "cuda/kernels/attention/attention_grad_half.h"

namespace shmap::cuda {

void attention_grad_f16(const AttentionGradCall& call, void* native_stream) {
  attention_grad_half<F16>(call, native_stream);
}

}  // namespace shmap::cuda
