#include "cuda/kernels/attention/attention_grad_half.h"

namespace shmap::cuda {

void attention_grad_bf16(const AttentionGradCall& call, void* native_stream) {
  attention_grad_half<Bf16>(call, native_stream);
}

}  // namespace shmap::cuda
