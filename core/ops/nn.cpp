// Neural network layers, as compositions of primitives. f16 and bf16 are computed in f32 where
// otherwise more than one rounding would be visible.
#include <algorithm>

#include "core/ir/node.h"
#include "core/ir/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/reduce.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

Array add(Array a, Array b, SourceLine s) {
  return bind_joint(add_p, std::move(a), std::move(b), s);
}
Array sub(Array a, Array b, SourceLine s) {
  return bind_joint(sub_p, std::move(a), std::move(b), s);
}
Array mul(Array a, Array b, SourceLine s) {
  return bind_joint(mul_p, std::move(a), std::move(b), s);
}
Array apply(const Primitive& p, Array x, SourceLine s) {
  return bind(p, std::move(x), no_params, s);
}
// A number, converted to x's dtype.
Array number(double value, const Array& x, SourceLine s) {
  return convert(Array(value), x.dtype(), s);
}

// x in another dtype, as weak as it is.
Array in_dtype(Array x, DType dtype, SourceLine s) {
  if (x.dtype() == dtype) return x;
  const bool weak = x.type().weak();
  return convert(std::move(x), dtype, s, weak);
}

// x minus its maximum along the axes, in the dtype in which sums add up. The maximum has no
// derivative, because it cancels in the functions that use the difference.
Array shifted(Operand&& x, const Dims& axes) {
  const SourceLine s = x.source;
  const DType wide = accumulation_dtype(x.value.dtype());
  x.value = in_dtype(std::move(x.value), wide, s);
  Array most = reduce(reduce_max_p, stop_gradient(x), axes, true, s);
  return sub(std::move(x.value), std::move(most), s);
}

Dims softmax_axes(Operand& x, const Dims& axis, const char* what) {
  const Dims axes = reduction_axes(&axis, type_of(x, what).rank(), what, x.source);
  promote_inexact(x, what);
  return axes;
}

// The dtype of a layer's result: the promoted dtype of x, scale and bias.
DType joint_inexact(std::initializer_list<const Operand*> operands, const char* what) {
  DType dtype = DType::bool_;
  for (const Operand* x : operands) {
    const ShapedArray& t = type_of(*x, what);
    if (t.dtype() == DType::prng_key) {
      throw TypeError(std::string(what) + ": an operand of type " + to_string(t) +
                      ": wanted numbers" + at_line(x->source));
    }
    dtype = promote_types(dtype, false, t.dtype(), t.weak()).dtype;
  }
  return to_inexact(dtype);
}

void want_dims(const Operand& x, const char* what) {
  if (type_of(x, what).rank() == 0) {
    throw ValueError(std::string(what) +
                     ": x is a scalar: wanted an array, which is normalised over its last dim" +
                     at_line(x.source));
  }
}

// Checks scale (operand 1) or bias (operand 2): else an error would name an operation inside of the
// layer.
void want_broadcastable(const Operand& x, const Operand& weight, std::size_t operand,
                        const char* what) {
  const char* name = operand == 1 ? "scale" : "bias";
  const ShapedArray &to = type_of(x, what), &of = type_of(weight, what);
  for (int d = 1; d <= std::min(to.rank(), of.rank()); ++d) {
    const std::int64_t n = to.dims().end()[-d], m = of.dims().end()[-d];
    if (n == m || n == 1 || m == 1) continue;
    throw ValueError(std::string(what) + ": " + name + " has type " + to_string(of) +
                     ", and x has type " + to_string(to) + ": a " + name + " of shape (" +
                     std::to_string(to.dims().back()) +
                     ",), the size of x's last dim, is wanted, or one that broadcasts to x" +
                     captured_text(weight.value, operand) + at_line(x.source));
  }
}

// x / sqrt(mean(x²) + eps) over the last dim.
Array unit_rms(Array x, double eps, SourceLine s) {
  const Dims last{x.ndim() - 1};
  Array power = mean_of(apply(square_p, x, s), last, true, s);
  Array norm = apply(rsqrt_p, add(std::move(power), number(eps, x, s), s), s);
  return mul(std::move(x), std::move(norm), s);
}

}  // namespace

Array softmax(Operand x, Dims axis) {
  const Dims axes = softmax_axes(x, axis, "softmax");
  const SourceLine s = x.source;
  const DType dtype = x.value.dtype();
  Array weights = apply(exp_p, shifted(std::move(x), axes), s);
  Array total = reduce(reduce_sum_p, weights, axes, true, s);
  return in_dtype(bind_joint(div_p, std::move(weights), std::move(total), s), dtype, s);
}

Array log_softmax(Operand x, Dims axis) {
  const Dims axes = softmax_axes(x, axis, "log_softmax");
  const SourceLine s = x.source;
  const DType dtype = x.value.dtype();
  Array logits = shifted(std::move(x), axes);
  Array total = reduce(reduce_sum_p, apply(exp_p, logits, s), axes, true, s);
  return in_dtype(sub(std::move(logits), apply(log_p, std::move(total), s), s), dtype, s);
}

Array relu(Operand x) {
  const SourceLine s = x.source;
  type_of(x, "relu");
  Array zero = number(0, x.value, s);
  const NodeKind kind = node_of(x.value)->kind;
  if (kind == NodeKind::literal || kind == NodeKind::stored)
    return bind(max_p, std::move(x.value), std::move(zero), no_params, s);
  // Equal to the maximum, except that the derivative at 0 is 0 (that of a maximum is one half).
  Array in[3] = {bind(le_p, x.value, zero, no_params, s), x.value, zero};
  return bind(select_n_p, in, no_params, s);
}

Array silu(Operand x) {
  const SourceLine s = x.source;
  promote_inexact(x, "silu");
  Array gate = apply(logistic_p, x.value, s);
  return mul(std::move(gate), std::move(x.value), s);
}

Array gelu(Operand x, bool approximate) {
  const SourceLine s = x.source;
  promote_inexact(x, "gelu");
  const DType dtype = x.value.dtype();
  const Array wide = convert(std::move(x.value), accumulation_dtype(dtype), s);
  constexpr double kSqrtHalf = 0.70710678118654752440, kSqrtTwoOverPi = 0.79788456080286535588;
  Array share;  // the share of x that passes
  if (approximate) {
    Array cube = mul(apply(square_p, wide, s), wide, s);
    Array inner = add(mul(std::move(cube), number(0.044715, wide, s), s), wide, s);
    share = apply(tanh_p, mul(std::move(inner), number(kSqrtTwoOverPi, wide, s), s), s);
  } else {
    share = apply(erf_p, mul(wide, number(kSqrtHalf, wide, s), s), s);
  }
  share = mul(add(std::move(share), number(1, wide, s), s), number(0.5, wide, s), s);
  return convert(mul(std::move(share), wide, s), dtype, s);
}

Array layer_norm(Operand x, Operand scale, Operand bias, double eps) {
  const FunctionScope scope("layer_norm", {&x.value, &scale.value, &bias.value}, x.source);
  const SourceLine s = x.source;
  want_dims(x, "layer_norm");
  const DType dtype = joint_inexact({&x, &scale, &bias}, "layer_norm");
  want_broadcastable(x, scale, 1, "layer_norm");
  want_broadcastable(x, bias, 2, "layer_norm");
  const DType wide = accumulation_dtype(dtype);
  Array centered = convert(std::move(x.value), wide, s);
  Array mean = mean_of(centered, Dims{centered.ndim() - 1}, true, s);
  centered = sub(std::move(centered), std::move(mean), s);
  Array out = unit_rms(std::move(centered), eps, s);
  out = mul(std::move(out), convert(std::move(scale.value), wide, s), s);
  out = add(std::move(out), convert(std::move(bias.value), wide, s), s);
  return convert(std::move(out), dtype, s);
}

Array rms_norm(Operand x, Operand scale, double eps) {
  const FunctionScope scope("rms_norm", {&x.value, &scale.value}, x.source);
  const SourceLine s = x.source;
  want_dims(x, "rms_norm");
  const DType dtype = joint_inexact({&x, &scale}, "rms_norm");
  want_broadcastable(x, scale, 1, "rms_norm");
  const DType wide = accumulation_dtype(dtype);
  Array out = unit_rms(convert(std::move(x.value), wide, s), eps, s);
  out = mul(std::move(out), convert(std::move(scale.value), wide, s), s);
  return convert(std::move(out), dtype, s);
}

}  // namespace shmap
