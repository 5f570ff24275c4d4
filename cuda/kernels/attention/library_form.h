// A call of attention in cuDNN's terms.
#pragma once
#include <optional>
#include <string>

#include "cuda/kernels/attention/attention_grad.h"
#include "cuda/libraries/cudnn_attention.h"

namespace shmap::cuda {

// Nothing, with the reason in `why` (static text), if cuDNN does not compute the same results.
std::optional<CudnnAttention> library_form(const Attention& a, const char** why);
std::optional<CudnnAttention> library_form(const AttentionGrad& g, const char** why);

// "bf16[2,8,1024,128] with keys [2,2,1024,128], causal"
std::string describe(const CudnnAttention& form);

}  // namespace shmap::cuda
