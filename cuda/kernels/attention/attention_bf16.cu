#include "cuda/kernels/attention/attention_half.h"

namespace shmap::cuda {

void attention_bf16(const AttentionCall& call, void* native_stream) {
  attention_half<Bf16>(call, native_stream);
}

}  // namespace shmap::cuda
