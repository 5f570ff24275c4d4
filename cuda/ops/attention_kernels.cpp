// attention on CUDA: operands are read where they lie.
#include "core/ops/attention.h"

#include "core/runtime/kernel.h"
#include "cuda/kernels/attention.h"

namespace shmap {

namespace {

cuda::AttentionOperand operand(const AttentionStrides& s, const void* data) {
  return {data, s.outer, s.inner, s.row};
}
cuda::ScoreOperand score_operand(const AttentionStrides& s, const void* data) {
  return {data, s.outer, s.inner, s.row, s.column};
}

// Without addresses, and without what params alone say.
cuda::Attention described(const AttentionForm& form) {
  cuda::Attention a;
  a.dtype = form.dtype;
  a.out_dtype = form.out_dtype;
  a.bias_dtype = form.bias_dtype.value_or(DType::f32);
  a.outer = form.outer;
  a.inner = form.inner;
  a.q_rows = form.q_rows;
  a.k_rows = form.k_rows;
  a.depth = form.depth;
  a.v_depth = form.v_depth;
  return a;
}

bool takes(const AttentionForm& form) { return cuda::takes_attention(described(form)); }

void run_attention(const KernelCall& call) {
  const auto& p = params_as<AttentionParams>(call.params);
  const AttentionForm form = attention_form(call.in_types, p).value();
  cuda::Attention a = described(form);
  a.q = operand(form.q, call.in[0]);
  a.k = operand(form.k, call.in[1]);
  a.v = operand(form.v, call.in[2]);
  a.out = call.out[0];
  a.out_outer = form.out.outer;
  a.out_inner = form.out.inner;
  a.out_row = form.out.row;
  if (!p.bias_dims.empty()) a.bias = score_operand(form.bias, call.in[3]);
  if (!p.mask_dims.empty()) a.mask = score_operand(form.mask, call.in.back());
  a.scale = static_cast<float>(p.scale);
  a.masked = static_cast<float>(p.masked);
  a.causal = p.causal;
  a.causal_offset = p.causal_offset;
  a.scratch = call.scratch;
  cuda::attention(a, call.native);
}

std::int64_t attention_scratch(const KernelCall& call) {
  const auto& p = params_as<AttentionParams>(call.params);
  return cuda::attention_scratch(described(attention_form(call.in_types, p).value()));
}

}  // namespace

void register_cuda_attention_kernels() {
  Kernel& kernel = attention_p.kernel(DeviceKind::cuda);
  kernel.run = run_attention;
  kernel.scratch = attention_scratch;
  set_attention_check(DeviceKind::cuda, takes);
}

}  // namespace shmap
