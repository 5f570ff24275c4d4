// Attention and its backward pass as graphs of cuDNN's operations, in the form for which it has
// fused kernels. Operands are [batch, head, row, feature].
#pragma once
#include "cuda/libraries/cudnn_graph.h"

namespace shmap::cuda {

// Strides of [batch, head, row], in elements; features are contiguous.
using HeadStrides = std::array<std::int64_t, 3>;

struct CudnnAttention {
  cudnn::Data type = cudnn::Data::bf16;  // f16 or bf16
  std::int64_t batch = 1, heads = 1;     // heads of q
  std::int64_t k_heads = 1;              // of k and v, each for heads / k_heads heads of q
  std::int64_t q_rows = 1, k_rows = 1;
  std::int64_t depth = 8, v_depth = 8;  // of q and k; of v and the result
  HeadStrides q{}, k{}, v{}, out{};
  float scale = 1;
  bool causal = false;  // columns beyond row + causal_offset have no weight
  std::int64_t causal_offset = 0;
  bool has_bias = false;  // added to the scaled scores
  cudnn::Data bias_type = cudnn::Data::f32;
  Extents4 bias_dims{}, bias_strides{};                // an extent of 1 repeats
  HeadStrides cotangent{}, q_bar{}, k_bar{}, v_bar{};  // of the backward pass
  // For the backward pass. true: q's cotangent is added up in one order, with memory for all
  // scores. false: in any order, so that its last bits may differ from run to run.
  bool ordered = true;
};

// The ids of the graphs' tensors. `logs` is the logarithm of each row's sum of exponentials, f32
// and packed: a result of the forward graph, if it is wanted, and an operand of the backward graph.
// `means` and `q_sums` are memory that the backward graph uses beside its workspace.
enum CudnnAttentionId : std::int64_t {
  q_id = 1,
  k_id,
  v_id,
  out_id,
  logs_id,
  bias_id,
  cotangent_id,
  q_bar_id,
  k_bar_id,
  v_bar_id,
  means_id,
  q_sums_id
};

CudnnGraph cudnn_attention(const CudnnAttention& a, bool wants_logs);
CudnnGraph cudnn_attention_grad(const CudnnAttention& a);

// Returns why that version of cuDNN computes the backward pass wrongly, although it has a kernel;
// null if it is right. (From cuDNN's own front end.)
const char* cudnn_grad_fault(const CudnnAttention& a, std::size_t version);

// Bytes of `means` and of `q_sums`.
std::int64_t cudnn_means_bytes(const CudnnAttention& a);
std::int64_t cudnn_q_sums_bytes(const CudnnAttention& a);  // 0: there are none

}  // namespace shmap::cuda
