#include "core/ops/attention.h"

#include <vector>

#include "core/base/counted.h"
#include "core/base/env.h"
#include "core/runtime/device_ops.h"
#include "shmap/error.h"

namespace shmap {

namespace {

std::int64_t extent(const ShapedArray& t, std::int64_t dim) {
  return dim < 0 ? 1 : t.dims()[static_cast<std::size_t>(dim)];
}

std::int64_t stride(const ShapedArray& t, std::int64_t dim) {
  std::int64_t s = 1;
  for (int d = t.rank(); --d > dim;) s *= t.dims()[static_cast<std::size_t>(d)];
  return s;
}

[[noreturn]] void refuse(const std::string& what, const ShapedArray& t) {
  throw ValueError("attention: " + what + " has type " + to_string(t) +
                   ", which does not fit its other operands");
}

// Checks the shape of one operand. repeats: how many of the first dims may be -1.
void check_operand(const char* what, const ShapedArray& t, const Dims& dims, const Shape& wanted,
                   std::size_t repeats) {
  bool fits = dims.size() == wanted.size();
  for (std::size_t i = 0; fits && i < dims.size(); ++i) {
    fits = dims[i] < t.rank() && (i < repeats || dims[i] >= 0) &&
           (dims[i] < 0 || extent(t, dims[i]) == wanted[i]);
  }
  if (!fits) refuse(what, t);
}

// The extents of [batch…, row of q, row of k].
Shape score_shape(Types in, const AttentionParams& p) {
  Shape shape;
  for (std::int64_t d : p.q_dims) shape.push_back(extent(in[0], d));
  shape[shape.size() - 1] = extent(in[1], p.k_dims[p.k_dims.size() - 2]);
  return shape;
}

}  // namespace

std::size_t attention_operands(const AttentionParams& p) {
  return 3u + !p.bias_dims.empty() + !p.mask_dims.empty();
}
int attention_bias(const AttentionParams& p) { return p.bias_dims.empty() ? -1 : 3; }
int attention_mask(const AttentionParams& p) {
  return p.mask_dims.empty() ? -1 : static_cast<int>(attention_operands(p)) - 1;
}

AttentionExtents attention_extents(Types in, const AttentionParams& p) {
  const std::size_t operands = attention_operands(p);
  if (in.size() < operands || p.q_dims.size() < 2 || p.k_dims.size() != p.q_dims.size() ||
      p.v_dims.size() != p.q_dims.size() || p.out_dims.size() != p.q_dims.size()) {
    throw ValueError("attention: " + counted(in.size(), "operand") + " given, and " +
                     std::to_string(operands) + " are wanted");
  }
  const std::size_t row = p.q_dims.size() - 2, last = row + 1;
  AttentionExtents out;
  out.scores = score_shape(in, p);
  out.depth = extent(in[0], p.q_dims[last]);
  out.v_depth = extent(in[2], p.v_dims[last]);
  Shape of_k = out.scores, of_v = out.scores;
  of_k[row] = of_v[row] = out.scores[last];
  of_k[last] = out.depth;
  of_v[last] = out.v_depth;
  for (std::size_t i = 0; i < row; ++i)
    if ((p.k_dims[i] < 0) != (p.v_dims[i] < 0)) refuse("v", in[2]);
  check_operand("k", in[1], p.k_dims, of_k, row);
  check_operand("v", in[2], p.v_dims, of_v, row);
  if (!p.bias_dims.empty()) check_operand("the bias", in[3], p.bias_dims, out.scores, row + 2);
  if (!p.mask_dims.empty()) {
    const ShapedArray& mask = in[operands - 1];
    check_operand("the mask", mask, p.mask_dims, out.scores, row + 2);
    if (mask.dtype() != DType::bool_) refuse("the mask", mask);
  }
  return out;
}

Shape attention_shape(const Shape& extents, const Dims& dims) {
  Shape shape = extents;
  for (std::size_t i = 0; i < dims.size(); ++i)
    shape[static_cast<std::size_t>(dims[i])] = extents[i];
  return shape;
}

namespace {

void eval_attention(Types in, const Params& params, std::span<ShapedArray> out) {
  const AttentionParams& p = params_as<AttentionParams>(params);
  if (in.size() > attention_operands(p)) refuse("an operand too many", in.back());
  const AttentionExtents n = attention_extents(in, p);
  Shape shape = n.scores;
  shape[shape.size() - 1] = n.v_depth;
  out[0] = ShapedArray(attention_shape(shape, p.out_dims), p.out_dtype, false, AxisSet());
  if (!p.keeps_sums) return;
  Shape sums = n.scores;
  sums[sums.size() - 1] = sums[sums.size() - 2];
  sums[sums.size() - 2] = 2;
  out[1] = ShapedArray(sums, DType::f32, false, AxisSet());
}

int attention_results(Types, const Params& params) {
  return params_as<AttentionParams>(params).keeps_sums ? 2 : 1;
}

// A bias or mask that varies over fewer axes is not cast: it is read as it is.
void vary_attention(Types in, const Params&, const detail::AxisEnv&, std::span<ShapedArray> out) {
  AxisSet all;
  for (const ShapedArray& t : in) all = all | t.axes();
  for (ShapedArray& t : out) t = t.with_axes(all);
}

// The flops of the equivalent equations: two products, and for each score a scale, an exponential,
// sums and a quotient.
double attention_flops(Types in, const Params& params, Types) {
  const AttentionParams& p = params_as<AttentionParams>(params);
  double scores = 1;
  for (std::int64_t e : score_shape(in, p)) scores *= static_cast<double>(e);
  const auto features =
      static_cast<double>(extent(in[0], p.q_dims.back()) + extent(in[2], p.v_dims.back()));
  return scores * (2 * features + 6);
}

Cost attention_cost(Types in, const Params& params, Types out) {
  Cost cost{attention_flops(in, params, out), 0};
  for (const ShapedArray& t : in) cost.bytes += static_cast<double>(t.nbytes());
  for (const ShapedArray& t : out) cost.bytes += static_cast<double>(t.nbytes());
  return cost;
}

// An operand or the result, with its strides in the order [batch…, row, column].
struct Strided {
  Strided(const ShapedArray& t, const Dims& dims, AttentionStrides* made) : to(made) {
    for (std::int64_t d : dims) strides.push_back(d < 0 || extent(t, d) == 1 ? 0 : stride(t, d));
  }
  IntList strides;
  AttentionStrides* to;
};

using Operands = std::vector<Strided>;

// True if the batch dims places[begin, end) are, in all operands, equivalent to one dim of one
// stride.
bool merge(const Operands& operands, const IntList& places, const Shape& scores, std::size_t begin,
           std::size_t end) {
  for (const Strided& x : operands) {
    for (std::size_t i = begin; i + 1 < end; ++i) {
      const auto at = static_cast<std::size_t>(places[i]),
                 next = static_cast<std::size_t>(places[i + 1]);
      if (x.strides[at] != x.strides[next] * scores[next]) return false;
    }
  }
  return true;
}

// Merges the batch dims into two (outer and inner), with the smallest possible outer extent.
bool split_batch(const Operands& operands, const Shape& scores, AttentionForm* form) {
  IntList places;  // of the batch dims with an extent other than 1
  for (std::size_t i = 0; i + 2 < scores.size(); ++i)
    if (scores[i] != 1) places.push_back(static_cast<std::int64_t>(i));
  const std::size_t n = places.size();
  for (std::size_t outer = 0; outer <= n; ++outer) {
    if (!merge(operands, places, scores, 0, outer) || !merge(operands, places, scores, outer, n))
      continue;
    for (std::size_t i = 0; i < n; ++i)
      (i < outer ? form->outer : form->inner) *= scores[static_cast<std::size_t>(places[i])];
    for (const Strided& x : operands) {
      if (outer > 0) x.to->outer = x.strides[static_cast<std::size_t>(places[outer - 1])];
      if (outer < n) x.to->inner = x.strides[static_cast<std::size_t>(places[n - 1])];
    }
    return true;
  }
  return false;
}

bool lies_together(const ShapedArray& t, const Dims& dims) {
  return extent(t, dims.back()) == 1 || stride(t, dims.back()) == 1;
}

}  // namespace

std::optional<AttentionForm> attention_form(Types in, const AttentionParams& p) {
  ShapedArray results[2];
  eval_attention(in, p, results);
  const ShapedArray& result = results[0];
  const Shape scores = score_shape(in, p);
  AttentionForm form;
  form.dtype = in[0].dtype();
  form.out_dtype = p.out_dtype;
  form.q_rows = scores[scores.size() - 2];
  form.k_rows = scores[scores.size() - 1];
  form.depth = extent(in[0], p.q_dims.back());
  form.v_depth = extent(in[2], p.v_dims.back());
  if (scores.num_elements() == 0 || form.depth == 0 || form.v_depth == 0) return std::nullopt;
  if (!lies_together(in[0], p.q_dims) || !lies_together(in[1], p.k_dims) ||
      !lies_together(in[2], p.v_dims) || !lies_together(result, p.out_dims))
    return std::nullopt;
  Operands operands = {{in[0], p.q_dims, &form.q},
                       {in[1], p.k_dims, &form.k},
                       {in[2], p.v_dims, &form.v},
                       {result, p.out_dims, &form.out}};
  if (!p.bias_dims.empty()) {
    form.bias_dtype = in[3].dtype();
    operands.emplace_back(in[3], p.bias_dims, &form.bias);
  }
  if (!p.mask_dims.empty()) operands.emplace_back(in.back(), p.mask_dims, &form.mask);
  if (!split_batch(operands, scores, &form)) return std::nullopt;
  for (const Strided& x : operands) {
    x.to->row = x.strides[x.strides.size() - 2];
    x.to->column = x.strides.back();
  }
  return form;
}

AttentionCheck attention_check(DeviceKind kind) {
  return env::flag(env::Var::attention) ? device_ops(kind).attends : nullptr;
}

void AttentionParams::visit(ParamVisitor& v) const {
  if (!bias_dims.empty()) v.value("bias_dims", bias_dims);
  if (causal) v.value("causal_offset", causal_offset);
  v.value("k_dims", k_dims);
  if (keeps_sums) v.value("keeps_sums", keeps_sums);
  if (!mask_dims.empty()) v.value("mask_dims", mask_dims);
  if (causal || !mask_dims.empty()) v.value("masked", masked);
  v.value("out_dims", out_dims);
  v.value("out_dtype", out_dtype);
  v.value("q_dims", q_dims);
  v.value("scale", scale);
  if (!tangents.empty()) v.value("tangents", tangents);
  v.value("v_dims", v_dims);
}

constinit Primitive attention_p = [] {
  Primitive p;
  p.name = "attention";
  p.abstract_eval = eval_attention;
  p.result_count = attention_results;
  p.variance = vary_attention;
  p.cost = attention_cost;
  p.flops = attention_flops;
  return p;
}();

void register_attention() { register_primitive(attention_p); }

}  // namespace shmap
