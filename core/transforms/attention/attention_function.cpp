// The user's function attention: one equation where the devices have kernels for it and its
// derivatives, otherwise a loop over blocks of rows.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/device/runtime.h"
#include "core/ir/node.h"
#include "core/ops/attention.h"
#include "core/ops/promote.h"
#include "core/ops/shape_params.h"
#include "core/transforms/attention/attention_rows.h"
#include "shmap/attention.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

[[noreturn]] void refuse(const std::string& why, SourceLine source) {
  throw ValueError("attention: " + why + at_line(source));
}

// x reshaped to [batch, groups, shared, rows, columns], with extent 1 along each dim that it
// broadcasts over. An empty x stays empty.
Array as_scores(const char* what, const Array& x, const AttentionSizes& n, SourceLine source) {
  if (!x.node()) return x;
  const ShapedArray type = x.type();
  const std::int64_t wanted[] = {n.batch, n.heads, n.rows, n.columns};
  std::int64_t extents[] = {1, 1, 1, 1};
  const int rank = type.rank();
  for (int d = 0; d < rank; ++d) {
    const std::int64_t extent = type.shape()[static_cast<std::size_t>(d)];
    const int at = d + 4 - rank;
    if (at < 0 || (extent != 1 && extent != wanted[at])) {
      refuse(std::string("the ") + what + " of type " + to_string(type) +
                 " does not fit scores of " +
                 to_string(Shape{n.batch, n.heads, n.rows, n.columns}) +
                 " (batch, heads, rows of q, rows of k): each of its last dims must have that "
                 "extent or 1",
             source);
    }
    extents[at] = extent;
  }
  const bool of_heads = extents[1] != 1;
  return reshape(
      x, {extents[0], of_heads ? n.groups : 1, of_heads ? n.shared() : 1, extents[2], extents[3]});
}

// Whether devices of the program's kind have kernels that are faster than the loop.
bool is_one_equation(const AttentionSizes& n, DType dtype, const Array& bias) {
  const AttentionCheck takes = attention_check(runtime().backend().kind());
  if (takes == nullptr) return false;
  AttentionForm form;
  form.dtype = form.out_dtype = dtype;
  if (bias.node()) form.bias_dtype = bias.dtype();
  form.outer = n.batch;
  form.inner = n.heads;
  form.q_rows = n.rows;
  form.k_rows = n.columns;
  form.depth = n.depth;
  form.v_depth = n.v_depth;
  const bool is_empty = form.outer * form.inner * form.q_rows * form.k_rows == 0 ||
                        form.depth == 0 || form.v_depth == 0;
  return !is_empty && takes(form);
}

// x without its dims of extent 1. dims: for each of [batch, groups, shared, rows, columns] the dim
// that is left, or -1.
Array without_repeats(const Array& x, Dims* dims, SourceLine source) {
  if (!x.node()) return x;
  Shape shape;
  for (std::int64_t e : x.shape()) {
    dims->push_back(e == 1 ? -1 : shape.rank());
    if (e != 1) shape.push_back(e);
  }
  return bind_reshape(x, shape, source);
}

Array as_one_equation(const Array& q, const Array& k, const Array& v, const Array& bias,
                      const Array& mask, double scale, bool causal, SourceLine source) {
  AttentionParams p;
  std::vector<Array> in{q, k, v};
  const Dims queries(std::vector<std::int64_t>{0, 2, 3, 1, 4}),
      keys(std::vector<std::int64_t>{0, 2, -1, 1, 3});
  p.q_dims = p.out_dims = queries;
  p.k_dims = p.v_dims = keys;
  if (bias.node()) in.push_back(without_repeats(bias, &p.bias_dims, source));
  if (mask.node()) in.push_back(without_repeats(mask, &p.mask_dims, source));
  p.scale = scale;
  p.masked = masked_score(DType::f32);
  p.causal = causal;
  p.out_dtype = q.dtype();
  AxisSet axes;
  for (const Array& x : in) axes = axes | node_of(x)->type.axes();
  for (Array& x : in)
    if (node_of(x)->type.axes() != axes) x = current_trace().vary(x, axes, source);
  return shmap::bind(attention_p, in, p, source);
}

}  // namespace

Array detail::attention(Operand q, Operand k, Operand v, const AttentionOptions& options) {
  const SourceLine source = q.source;
  const FunctionScope scope("attention", {&q.value, &k.value, &v.value}, source);
  promote(q, k, "attention");
  promote(q, v, "attention");
  promote(k, v, "attention");
  const ShapedArray tq = type_of(q, "attention"), tk = type_of(k, "attention"),
                    tv = type_of(v, "attention");
  const std::string types = "q of type " + to_string(tq) + ", k of type " + to_string(tk) +
                            " and v of type " + to_string(tv);
  if (!is_floating(tq.dtype())) {
    throw TypeError("attention: " + types + ": floats are wanted; convert them with astype" +
                    at_line(source));
  }
  const int rank = tq.rank();
  if ((rank != 3 && rank != 4) || tk.rank() != rank || tv.rank() != rank)
    refuse(types + ": [batch, row, head, feature] is wanted of each, or [row, head, feature]",
           source);
  const auto extent = [&](const ShapedArray& t, int d) {
    return d == 0 ? (rank == 3 ? 1 : t.shape()[0])
                  : t.shape()[static_cast<std::size_t>(d + rank - 4)];
  };
  const AttentionSizes n{extent(tq, 0), extent(tq, 1), extent(tq, 2), extent(tq, 3),
                         extent(tk, 1), extent(tk, 2), extent(tv, 3)};
  if (extent(tk, 0) != n.batch || extent(tv, 0) != n.batch)
    refuse(types + ": their batch dims must be equal", source);
  if (extent(tk, 3) != n.depth) refuse(types + ": q and k must have equally many features", source);
  if (extent(tv, 1) != n.columns || extent(tv, 2) != n.groups)
    refuse(types + ": k and v must have equally many rows and heads", source);
  if (n.groups == 0 || n.heads % n.groups != 0) {
    refuse(types + ": the " + std::to_string(n.heads) + " heads of q must be a multiple of the " +
               std::to_string(n.groups) + " of k and v",
           source);
  }
  if (options.mask.node() && options.mask.dtype() != bool_) {
    throw TypeError("attention: the mask of type " + to_string(options.mask.type()) +
                    ": bools are wanted" + at_line(source));
  }
  const double scale = options.scale.value_or(
      1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(n.depth, 1))));
  const Array bias = as_scores("bias", options.bias, n, source),
              mask = as_scores("mask", options.mask, n, source);
  const Array x = reshape(q.value, {n.batch, n.rows, n.groups, n.shared(), n.depth}),
              key = reshape(k.value, {n.batch, n.columns, n.groups, n.depth}),
              value = reshape(v.value, {n.batch, n.columns, n.groups, n.v_depth});
  Array y;
  if (is_kernel_scale(scale) && is_one_equation(n, tq.dtype(), bias)) {
    y = as_one_equation(x, key, value, bias, mask, scale, options.is_causal, source);
  } else {
    const AttentionOperands operands = {transpose(x, {0, 2, 3, 1, 4}), transpose(key, {0, 2, 1, 3}),
                                        transpose(value, {0, 2, 1, 3}), bias, mask};
    y = attention_rows(n, operands, scale, options.is_causal, source);
    y = transpose(y, {0, 3, 1, 2, 4});
  }
  return rank == 3 ? reshape(y, {n.rows, n.heads, n.v_depth})
                   : reshape(y, {n.batch, n.rows, n.heads, n.v_depth});
}

}  // namespace shmap
