#include "cuda/kernels/attention/library_form.h"

#include <cstdlib>
#include <limits>

#include "cuda/kernels/attention/attention_call.h"

namespace shmap::cuda {

namespace {

constexpr std::int64_t kPieceBytes = 16;  // cuDNN reads pieces of so many
// A masked score up to this bound has no weight beside the others, as -infinity has none.
constexpr float kWeightless = -1e30f;

// Converts a call with batch dims [outer, inner, shared] to one with [batch, head].
class Form {
 public:
  Form(const Attention& a, const char** why) : a_(a), why_(why) {}

  bool refuse(const char* reason) {
    *why_ = reason;
    return false;
  }

  bool fill() {
    if (a_.dtype != f16 && a_.dtype != bf16) return refuse("cuDNN has it for f16 and bf16");
    if (a_.out_dtype != a_.dtype) return refuse("the result's dtype differs");
    if (a_.mask.data != nullptr) return refuse("there is a mask");
    // cuDNN takes a row's maximum before it scales: for other scales another score is then the
    // greatest, which gives NaNs.
    if (!(a_.scale > 0)) return refuse("scores are scaled by a number that is not positive");
    f.type = a_.dtype == f16 ? cudnn::Data::f16 : cudnn::Data::bf16;
    f.batch = a_.outer;
    f.k_heads = a_.inner;
    f.heads = a_.inner * a_.shared;
    f.q_rows = a_.q_rows;
    f.k_rows = a_.k_rows;
    f.depth = a_.depth;
    f.v_depth = a_.v_depth;
    f.scale = a_.scale;
    const AttentionOperand out{a_.out, a_.out_outer, a_.out_inner, a_.out_row, a_.out_member};
    return of_q(f.q, a_.q, a_.depth) && of_k(f.k, a_.k, a_.depth) && of_k(f.v, a_.v, a_.v_depth) &&
           of_q(f.out, out, a_.v_depth) && add_mask() && add_bias();
  }

  bool of_q(HeadStrides& to, const AttentionOperand& x, std::int64_t depth) {
    if (a_.shared > 1 && a_.inner > 1 && x.inner != a_.shared * x.member)
      return refuse("heads that share keys do not lie one after another");
    return lie(to, x, a_.shared > 1 ? x.member : x.inner, f.heads, a_.q_rows, depth);
  }
  bool of_k(HeadStrides& to, const AttentionOperand& x, std::int64_t depth) {
    return lie(to, x, x.inner, f.k_heads, a_.k_rows, depth);
  }

  CudnnAttention f;

 private:
  bool lie(HeadStrides& to, const AttentionOperand& x, std::int64_t head, std::int64_t heads,
           std::int64_t rows, std::int64_t depth) {
    if (!lies_in_pieces(a_, x, depth, static_cast<int>(itemsize(a_.dtype)), kPieceBytes))
      return refuse("operands do not lie at multiples of 16 bytes");
    // A dim of one item has the stride that it would have in packed memory.
    to = {f.batch == 1 ? heads * rows * depth : x.outer, heads == 1 ? rows * depth : head,
          rows == 1 ? depth : x.row};
    return (to[0] > 0 && to[1] > 0 && to[2] >= depth) || refuse("an operand repeats in memory");
  }
  bool add_mask() {
    if (!a_.causal || a_.causal_offset >= a_.k_rows - 1) return true;  // all columns are seen
    if (a_.causal_offset < 0) return refuse("rows without a column");
    if (!(a_.masked <= kWeightless)) return refuse("masked scores have weight");
    f.causal = true;
    f.causal_offset = a_.causal_offset;
    return true;
  }
  bool add_bias() {
    const ScoreOperand& b = a_.bias;
    if (b.data == nullptr) return true;
    if (a_.shared > 1 && a_.inner > 1 && b.inner != a_.shared * b.member)
      return refuse("the bias of heads that share keys does not lie one after another");
    f.has_bias = true;
    f.bias_type = a_.bias_dtype == f32 ? cudnn::Data::f32 : f.type;
    const std::int64_t head = a_.shared > 1 ? b.member : b.inner;
    const Extents4 dims{f.batch, f.heads, f.q_rows, f.k_rows};
    const Extents4 strides{b.outer, head, b.row, b.column};
    if (b.column > 1 || reinterpret_cast<std::uintptr_t>(b.data) % kPieceBytes != 0)
      return refuse("the bias does not lie in rows at multiples of 16 bytes");
    std::int64_t packed = 1;
    for (std::size_t i = 4; i-- > 0;) {
      f.bias_dims[i] = strides[i] == 0 ? 1 : dims[i];
      f.bias_strides[i] = f.bias_dims[i] == 1 ? packed : strides[i];
      packed = f.bias_dims[i] * f.bias_strides[i];
    }
    return true;
  }

  const Attention& a_;
  const char** why_;
};

}  // namespace

std::optional<CudnnAttention> library_form(const Attention& a, const char** why) {
  Form form(a, why);
  if (!form.fill()) return std::nullopt;
  return form.f;
}

std::optional<CudnnAttention> library_form(const AttentionGrad& g, const char** why) {
  Form form(g.a, why);
  if (g.adds) {
    form.refuse("the cotangents of k and v are added to those of other heads");
    return std::nullopt;
  }
  const auto read = [](const AttentionGradient& x) {
    return AttentionOperand{x.data, x.outer, x.inner, x.row, x.member};
  };
  if (!form.fill() || !form.of_q(form.f.cotangent, g.cotangent, g.a.v_depth) ||
      !form.of_q(form.f.q_bar, read(g.q_bar), g.a.depth) ||
      !form.of_k(form.f.k_bar, read(g.k_bar), g.a.depth) ||
      !form.of_k(form.f.v_bar, read(g.v_bar), g.a.v_depth))
    return std::nullopt;
  return form.f;
}

std::string describe(const CudnnAttention& f) {
  const auto shape = [](std::int64_t batch, std::int64_t heads, std::int64_t rows,
                        std::int64_t depth) {
    return "[" + std::to_string(batch) + "," + std::to_string(heads) + "," + std::to_string(rows) +
           "," + std::to_string(depth) + "]";
  };
  std::string text = std::string(f.type == cudnn::Data::f16 ? "f16" : "bf16") +
                     shape(f.batch, f.heads, f.q_rows, f.depth) + ", keys " +
                     shape(f.batch, f.k_heads, f.k_rows, f.depth);
  if (f.v_depth != f.depth) text += ", values of " + std::to_string(f.v_depth);
  if (f.causal) text += ", causal";
  if (f.has_bias) text += ", with a bias";
  if (!f.ordered) text += ", in any order";
  return text;
}

}  // namespace shmap::cuda
