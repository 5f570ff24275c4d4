// attention and its derivatives on CUDA: operands are read in place.
#include "core/ops/attention_grad.h"
#include "core/runtime/device_ops.h"
#include "core/runtime/kernel.h"
#include "cuda/kernels/attention/attention_grad.h"
#include "cuda/kernels/elementwise/fill.h"
#include "cuda/ops/attention_calls.h"

namespace shmap {

namespace {

// The description of a call, from the types alone.
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

// A KernelCall of attention, or of one of its derivatives, as calls of kernels.
class GpuAttention {
 public:
  using Operand = AttentionCalls::Operand;
  enum class Of { attention, derivative };

  GpuAttention(const KernelCall& call, Of of)
      : p_(params_as<AttentionParams>(call.params)),
        call_(call),
        n_(attention_extents(call.in_types, p_)),
        count_(attention_operands(p_)),
        calls_(n_.scores, p_) {
    q_ = calls_.add(call.in_types[0], p_.q_dims);
    k_ = calls_.add(call.in_types[1], p_.k_dims);
    v_ = calls_.add(call.in_types[2], p_.v_dims);
    if (const int i = attention_bias(p_); i >= 0) bias_ = calls_.add(in_type(i), p_.bias_dims);
    if (const int i = attention_mask(p_); i >= 0) mask_ = calls_.add(in_type(i), p_.mask_dims);
    const Types results = of == Of::attention ? call.out_types : call.in_types.subspan(count_, 2);
    out_ = calls_.add(results[0], p_.out_dims);
    if (of == Of::derivative || p_.keeps_sums) {
      Dims dims;  // [batch…, 2, row]
      for (int d = 0; d < results[1].rank(); ++d) dims.push_back(d);
      sums_ = calls_.add(results[1], dims);
    }
    if (of == Of::attention) {
      out_data_ = call.out[0];
      sums_data_ = p_.keeps_sums ? call.out[1] : nullptr;
    } else {
      out_data_ = const_cast<void*>(call.in[count_]);
      sums_data_ = const_cast<void*>(call.in[count_ + 1]);
    }
  }
  // Adds operands or results with the layouts of q, k and v: gradients or tangents.
  void add_like(const ShapedArray (&types)[3]) {
    const Dims* const dims[] = {&p_.q_dims, &p_.k_dims, &p_.v_dims};
    for (std::size_t i = 0; i < 3; ++i) like_[i] = calls_.add(types[i], *dims[i]);
  }
  // Call after all operands are added.
  void settle() { calls_.settle(); }

  bool is_empty() const { return n_.scores.num_elements() == 0; }
  std::size_t operands() const { return count_; }
  const AttentionParams& params() const { return p_; }
  const AttentionCalls& calls() const { return calls_; }

  // The description without addresses.
  cuda::Attention described() const {
    cuda::Attention a;
    a.dtype = call_.in_types[0].dtype();
    a.out_dtype = p_.out_dtype;
    if (const int i = attention_bias(p_); i >= 0) a.bias_dtype = in_type(i).dtype();
    a.outer = calls_.outer();
    a.inner = calls_.inner();
    a.shared = static_cast<int>(calls_.shared());
    a.q_rows = n_.scores[n_.scores.size() - 2];
    a.k_rows = n_.scores[n_.scores.size() - 1];
    a.depth = n_.depth;
    a.v_depth = n_.v_depth;
    a.scale = static_cast<float>(p_.scale);
    a.masked = static_cast<float>(p_.masked);
    a.causal = p_.causal;
    a.causal_offset = p_.causal_offset;
    return a;
  }
  // Call number i.
  cuda::Attention at(std::int64_t i) const {
    using To = cuda::AttentionOperand;
    cuda::Attention a = described();
    a.q = calls_.operand<To>(q_, call_.in[0], i);
    a.k = calls_.operand<To>(k_, call_.in[1], i);
    a.v = calls_.operand<To>(v_, call_.in[2], i);
    const auto scores = [&](const Operand& x, int operand) {
      auto to =
          calls_.operand<cuda::ScoreOperand>(x, call_.in[static_cast<std::size_t>(operand)], i);
      to.column = x.column;
      return to;
    };
    if (const int bias = attention_bias(p_); bias >= 0) a.bias = scores(bias_, bias);
    if (const int mask = attention_mask(p_); mask >= 0) a.mask = scores(mask_, mask);
    const auto out = like_out(out_data_, i);
    a.out = out.data;
    a.out_outer = out.outer;
    a.out_inner = out.inner;
    a.out_member = out.member;
    a.out_row = out.row;
    if (sums_data_ != nullptr) {
      const auto sums = calls_.operand<cuda::AttentionGradient>(sums_, sums_data_, i);
      a.sums = static_cast<float*>(sums.data);
      a.sums_outer = sums.outer;
      a.sums_inner = sums.inner;
      a.sums_member = sums.member;
    }
    return a;
  }
  // The memory of results that have the layout of the result, or of q, k or v.
  cuda::AttentionGradient like_out(void* data, std::int64_t i) const {
    return calls_.operand<cuda::AttentionGradient>(out_, data, i);
  }
  cuda::AttentionOperand like_out(const void* data, std::int64_t i) const {
    return calls_.operand<cuda::AttentionOperand>(out_, data, i);
  }
  template <class To, class Data>
  To like(std::size_t which, Data* data, std::int64_t i) const {
    return calls_.operand<To>(like_[which], data, i);
  }

 private:
  const ShapedArray& in_type(int i) const { return call_.in_types[static_cast<std::size_t>(i)]; }

  const AttentionParams& p_;
  const KernelCall& call_;
  AttentionExtents n_;
  std::size_t count_;
  AttentionCalls calls_;
  Operand q_, k_, v_, bias_, mask_, out_, sums_, like_[3];
  void *out_data_ = nullptr, *sums_data_ = nullptr;
};

// ---- attention

GpuAttention forward(const KernelCall& call) {
  GpuAttention attention(call, GpuAttention::Of::attention);
  attention.settle();
  return attention;
}

void run_attention(const KernelCall& call) {
  const GpuAttention attention = forward(call);
  if (attention.is_empty()) return;
  for (std::int64_t i = 0; i < attention.calls().calls(); ++i) {
    cuda::Attention a = attention.at(i);
    a.scratch = call.scratch;
    cuda::attention(a, call.native);
  }
}

std::int64_t attention_scratch(const KernelCall& call) {
  const GpuAttention attention = forward(call);
  return attention.is_empty() ? 0 : cuda::attention_scratch(attention.described());
}

// ---- its derivatives

GpuAttention backward(const KernelCall& call) {
  GpuAttention attention(call, GpuAttention::Of::derivative);
  attention.add_like({call.out_types[0], call.out_types[1], call.out_types[2]});
  attention.settle();
  return attention;
}

void run_grad(const KernelCall& call) {
  const GpuAttention attention = backward(call);
  if (attention.is_empty()) {  // empty sums
    for (std::size_t i = 0; i < call.out.size(); ++i) {
      static constexpr std::uint8_t zero = 0;
      const std::int64_t bytes = call.out_types[i].nbytes();
      if (bytes > 0)
        cuda::fill(call.out[i], {&zero, cuda::Operand::literal}, 1, bytes, call.native);
    }
    return;
  }
  using To = cuda::AttentionGradient;
  for (std::int64_t i = 0; i < attention.calls().calls(); ++i) {
    cuda::AttentionGrad g;
    g.a = attention.at(i);
    g.cotangent = attention.like_out(call.in[attention.operands() + 2], i);
    g.q_bar = attention.like<To>(0, call.out[0], i);
    g.k_bar = attention.like<To>(1, call.out[1], i);
    g.v_bar = attention.like<To>(2, call.out[2], i);
    g.adds = i >= attention.calls().own_calls();
    g.scratch = call.scratch;
    cuda::attention_grad(g, call.native);
  }
}

std::int64_t grad_scratch(const KernelCall& call) {
  const GpuAttention attention = backward(call);
  return attention.is_empty() ? 0 : cuda::attention_grad_scratch(attention.described());
}

void run_tangent(const KernelCall& call) {
  GpuAttention attention(call, GpuAttention::Of::derivative);
  // Tangents have the layout of their operands.
  attention.add_like({call.in_types[0], call.in_types[1], call.in_types[2]});
  attention.settle();
  if (attention.is_empty()) return;
  const Dims& tangents = attention.params().tangents;
  for (std::int64_t i = 0; i < attention.calls().calls(); ++i) {
    cuda::AttentionTangent t;
    t.a = attention.at(i);
    cuda::AttentionOperand* const moved[] = {&t.q_dot, &t.k_dot, &t.v_dot};
    for (std::size_t j = 0; j < tangents.size(); ++j) {
      const auto which = static_cast<std::size_t>(tangents[j]);
      *moved[which] =
          attention.like<cuda::AttentionOperand>(which, call.in[attention.operands() + 2 + j], i);
    }
    t.out_dot = attention.like_out(call.out[0], i);
    cuda::attention_tangent(t, call.native);
  }
}

}  // namespace

void register_cuda_attention_kernels() {
  attention_p.kernel(DeviceKind::cuda) = {.run = run_attention, .scratch = attention_scratch};
  attention_grad_p.kernel(DeviceKind::cuda) = {.run = run_grad, .scratch = grad_scratch};
  attention_tangent_p.kernel(DeviceKind::cuda) = {run_tangent};
  device_ops(DeviceKind::cuda).attends = takes;
}

}  // namespace shmap
