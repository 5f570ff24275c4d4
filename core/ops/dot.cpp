#include "core/ops/dot.h"

#include <algorithm>

#include "core/base/contains.h"
#include "core/base/counted.h"
#include "core/base/float_format.h"
#include "core/ops/batch_rules.h"
#include "core/ops/elementwise.h"
#include "core/ops/promote.h"
#include "core/ops/rules.h"
#include "core/ops/shape_params.h"
#include "core/ops/shape_rules.h"
#include "shmap/ops.h"

namespace shmap {

namespace {

void check_pair(const ShapedArray& a, const ShapedArray& b, const Dims& of_a, const Dims& of_b,
                const char* kind) {
  const std::string types = to_string(a) + " and " + to_string(b);
  if (of_a.size() != of_b.size()) {
    throw ValueError("dot_general: of operands " + types + ", " +
                     counted(of_a.size(), kind + std::string(" dim")) + " of the left one " +
                     (of_a.size() == 1 ? "is" : "are") + " given and " +
                     std::to_string(of_b.size()) + " of the right one: they are paired one to one");
  }
  normalize_dims(of_a, a.rank(), "dot_general: left operand");
  normalize_dims(of_b, b.rank(), "dot_general: right operand");
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    const auto da = static_cast<std::size_t>(of_a[i]), db = static_cast<std::size_t>(of_b[i]);
    if (a.dims()[da] == b.dims()[db]) continue;
    throw ValueError("dot_general: " + types + ": the " + kind + " dims " + std::to_string(da) +
                     " of the left operand, of size " + std::to_string(a.dims()[da]) + ", and " +
                     std::to_string(db) + " of the right one, of size " +
                     std::to_string(b.dims()[db]) + ", must have one size");
  }
}

void check_disjoint(const ShapedArray& t, const Dims& contracting, const Dims& batch,
                    const char* side) {
  for (std::int64_t d : batch) {
    if (!contains(contracting, d)) continue;
    throw ValueError("dot_general: dim " + std::to_string(d) + " of the " + side +
                     " operand of type " + to_string(t) +
                     " is given both as contracting and as batch: it can be one of them");
  }
}

void eval_dot(Types in, const Params& params, std::span<ShapedArray> out) {
  const auto& p = params_as<DotParams>(params);
  const ShapedArray &a = in[0], &b = in[1];
  if (a.dtype() != b.dtype()) {
    throw TypeError("dot_general: operands of types " + to_string(a) + " and " + to_string(b) +
                    ": convert one with astype");
  }
  if (a.dtype() == DType::prng_key)
    throw TypeError("dot_general: random keys are not numbers, and have no products");
  check_pair(a, b, p.lhs_contracting, p.rhs_contracting, "contracting");
  check_pair(a, b, p.lhs_batch, p.rhs_batch, "batch");
  check_disjoint(a, p.lhs_contracting, p.lhs_batch, "left");
  check_disjoint(b, p.rhs_contracting, p.rhs_batch, "right");
  Shape shape;
  for (std::int64_t d : p.lhs_batch) shape.push_back(a.dims()[static_cast<std::size_t>(d)]);
  for (std::int64_t d : free_dims(a.rank(), p.lhs_contracting, p.lhs_batch))
    shape.push_back(a.dims()[static_cast<std::size_t>(d)]);
  for (std::int64_t d : free_dims(b.rank(), p.rhs_contracting, p.rhs_batch))
    shape.push_back(b.dims()[static_cast<std::size_t>(d)]);
  shape.num_elements();
  const DType dtype = p.preferred_element_type.value_or(a.dtype());
  if (dtype != a.dtype() && !(dtype == DType::f32 && is_half(a.dtype()))) {
    throw TypeError("dot_general: operands of dtype " + to_string(a.dtype()) + " give " +
                    to_string(a.dtype()) +
                    " (f16 and bf16 also f32), and the result is wanted as " + to_string(dtype));
  }
  out[0] = ShapedArray(shape, dtype, a.weak() && b.weak(), AxisSet());
}

// A multiplication and an addition for each element of the result and each contracted item.
double dot_flops(Types in, const Params& params, Types out) {
  double k = 1;
  for (std::int64_t d : params_as<DotParams>(params).lhs_contracting)
    k *= static_cast<double>(in[0].dims()[static_cast<std::size_t>(d)]);
  return 2 * k * static_cast<double>(out[0].size());
}

Cost dot_cost(Types in, const Params& params, Types out) {
  // A half-type product runs several times as fast as an f32 one; the difference does not matter
  // for queueing.
  return {dot_flops(in, params, out), static_cast<double>(in[0].nbytes()) +
                                          static_cast<double>(in[1].nbytes()) +
                                          static_cast<double>(out[0].nbytes())};
}

// Batch dims and the operands' other dims pass; the contracted ones are summed.
FactorRule dot_sharding(Types in, const Params& params, Types) {
  const auto& p = params_as<DotParams>(params);
  FactorRule rule;
  rule.operands.resize(2);
  rule.operands[0].resize(static_cast<std::size_t>(in[0].rank()));
  rule.operands[1].resize(static_cast<std::size_t>(in[1].rank()));
  rule.results.resize(1);
  const auto factor = [&](std::int64_t size, FactorKind kind) {
    rule.factors.push_back({size, kind});
    return static_cast<int>(rule.factors.size()) - 1;
  };
  const auto extent = [&](int operand, std::int64_t d) {
    return in[static_cast<std::size_t>(operand)].dims()[static_cast<std::size_t>(d)];
  };
  for (std::size_t i = 0; i < p.lhs_batch.size(); ++i) {
    const int f = factor(extent(0, p.lhs_batch[i]), FactorKind::pass);
    rule.operands[0][static_cast<std::size_t>(p.lhs_batch[i])] = {f};
    rule.operands[1][static_cast<std::size_t>(p.rhs_batch[i])] = {f};
    rule.results[0].push_back({f});
  }
  for (std::size_t i = 0; i < p.lhs_contracting.size(); ++i) {
    const int f = factor(extent(0, p.lhs_contracting[i]), FactorKind::sum);
    rule.operands[0][static_cast<std::size_t>(p.lhs_contracting[i])] = {f};
    rule.operands[1][static_cast<std::size_t>(p.rhs_contracting[i])] = {f};
  }
  for (int operand : {0, 1}) {
    const Dims free = free_dims(in[static_cast<std::size_t>(operand)].rank(),
                                operand ? p.rhs_contracting : p.lhs_contracting,
                                operand ? p.rhs_batch : p.lhs_batch);
    for (std::int64_t d : free) {
      const int f = factor(extent(operand, d), FactorKind::pass);
      rule.operands[static_cast<std::size_t>(operand)][static_cast<std::size_t>(d)] = {f};
      rule.results[0].push_back({f});
    }
  }
  return rule;
}

// The dims over which a product of matrices or vectors is summed: the last one of the left operand,
// and the last but one, or the only one, of the right operand.
DotParams inner_dims(const Operand& a, const Operand& b, const char* what) {
  const ShapedArray &ta = type_of(a, what), &tb = type_of(b, what);
  const int ka = ta.rank() - 1, kb = std::max(0, tb.rank() - 2);
  const std::int64_t size_a = ta.dims()[static_cast<std::size_t>(ka)],
                     size_b = tb.dims()[static_cast<std::size_t>(kb)];
  if (size_a != size_b) {
    throw ValueError(
        std::string(what) + ": operands of types " + to_string(ta) + " and " + to_string(tb) +
        " do not fit: the last dim of the left one has size " + std::to_string(size_a) +
        ", and the " + (tb.rank() == 1 ? "dim" : "last dim but one") + " of the right one size " +
        std::to_string(size_b) + ": they are multiplied and summed over, and must be equal" +
        captured_text(a.value, 0) + captured_text(b.value, 1) + at_line(a.source));
  }
  DotParams p;
  p.lhs_contracting = Dims(ka);
  p.rhs_contracting = Dims(kb);
  return p;
}

// The batch dims of a matmul's result, aligned from the last. A dim of both operands is a batch dim
// of the product; a dim of only one operand (or of size 1 in the other) is a free dim of that
// operand. No operand is broadcast.
struct MatmulBatch {
  enum Side : std::uint8_t { both, left, right };
  std::vector<Side> sides;                // for each dim of the result, who has it
  std::vector<int> squeeze_a, squeeze_b;  // the dims of size 1 that an operand loses
};

MatmulBatch align_batch(const Operand& a, const Operand& b) {
  const ShapedArray &ta = type_of(a, "matmul"), &tb = type_of(b, "matmul");
  const int batch_a = std::max(0, ta.rank() - 2), batch_b = std::max(0, tb.rank() - 2);
  const int rank = std::max(batch_a, batch_b);
  MatmulBatch batch;
  for (int d = 0; d < rank; ++d) {
    const int da = d - (rank - batch_a), db = d - (rank - batch_b);
    const std::int64_t ea = da >= 0 ? ta.dims()[static_cast<std::size_t>(da)] : 1;
    const std::int64_t eb = db >= 0 ? tb.dims()[static_cast<std::size_t>(db)] : 1;
    if (ea != eb && ea != 1 && eb != 1) {
      throw ValueError("matmul: operands of types " + to_string(ta) + " and " + to_string(tb) +
                       ": their batch dims of sizes " + std::to_string(ea) + " and " +
                       std::to_string(eb) + " do not broadcast" + captured_text(a.value, 0) +
                       captured_text(b.value, 1) + at_line(a.source));
    }
    if (da >= 0 && db >= 0 && ea == eb) {
      batch.sides.push_back(MatmulBatch::both);
    } else if (da >= 0 && (db < 0 || eb == 1)) {
      batch.sides.push_back(MatmulBatch::left);
      if (db >= 0) batch.squeeze_b.push_back(db);
    } else {
      batch.sides.push_back(MatmulBatch::right);
      if (da >= 0) batch.squeeze_a.push_back(da);
    }
  }
  return batch;
}

// x without dims of size 1.
Array without_dims(Array x, const std::vector<int>& dims, SourceLine source) {
  const Shape from = x.shape();
  Shape shape;
  for (int d = 0; d < from.rank(); ++d)
    if (!contains(dims, d)) shape.push_back(from[static_cast<std::size_t>(d)]);
  return bind_reshape(std::move(x), shape, source);
}

Array batched_matmul(Operand&& a, Operand&& b) {
  const SourceLine source = a.source;
  const MatmulBatch batch = align_batch(a, b);
  const bool has_rows = type_of(a, "matmul").rank() > 1,
             has_columns = type_of(b, "matmul").rank() > 1;
  Array x = without_dims(std::move(a.value), batch.squeeze_a, source),
        y = without_dims(std::move(b.value), batch.squeeze_b, source);
  DotParams p;
  // The places in the result of the product's dims, which are ordered as batch, left, right.
  Dims place, left_at, right_at;
  int ia = 0, ib = 0, at = 0;
  for (const MatmulBatch::Side side : batch.sides) {
    (side == MatmulBatch::both   ? place
     : side == MatmulBatch::left ? left_at
                                 : right_at)
        .push_back(at++);
    if (side == MatmulBatch::both) {
      p.lhs_batch.push_back(ia);
      p.rhs_batch.push_back(ib);
    }
    if (side != MatmulBatch::right) ++ia;
    if (side != MatmulBatch::left) ++ib;
  }
  if (has_rows) left_at.push_back(at++);
  if (has_columns) right_at.push_back(at);
  for (std::int64_t d : left_at) place.push_back(d);
  for (std::int64_t d : right_at) place.push_back(d);
  p.lhs_contracting = Dims(x.ndim() - 1);
  p.rhs_contracting = Dims(std::max(0, y.ndim() - 2));
  Dims permutation = place;
  for (std::size_t d = 0; d < place.size(); ++d)
    permutation[static_cast<std::size_t>(place[d])] = static_cast<std::int64_t>(d);
  return bind_transpose(bind_dot(std::move(x), std::move(y), p, source), permutation, source);
}

// NumPy's * of two bools is "and".
Array bind_multiply(Array a, Array b, SourceLine source) {
  const Primitive& p = a.dtype() == DType::bool_ ? bit_and_p : mul_p;
  return bind(p, std::move(a), std::move(b), no_params, source);
}

}  // namespace

void DotParams::visit(ParamVisitor& v) const {
  const auto list = [](const Dims& d) { return to_string(Shape(std::span(d.begin(), d.end()))); };
  const std::string numbers = "((" + list(lhs_contracting) + ", " + list(rhs_contracting) + "), (" +
                              list(lhs_batch) + ", " + list(rhs_batch) + "))";
  v.value("dimension_numbers", std::string_view(numbers));
  if (preferred_element_type) v.value("preferred_element_type", *preferred_element_type);
}

Dims free_dims(int rank, const Dims& contracting, const Dims& batch) {
  Dims free;
  for (int d = 0; d < rank; ++d)
    if (!contains(contracting, d) && !contains(batch, d)) free.push_back(d);
  return free;
}

constinit Primitive dot_general_p = [] {
  Primitive p;
  p.name = "dot_general";
  p.abstract_eval = eval_dot;
  p.cost = dot_cost;
  p.flops = dot_flops;
  p.sharding = Rule<ShardingRuleFn>(dot_sharding);
  p.jvp = Rule<JvpFn>(jvp_bilinear);
  p.transpose = Rule<TransposeFn>(transpose_dot);
  p.batching = Rule<BatchFn>(batch_dot);
  return p;
}();

void register_dot() { register_primitive(dot_general_p); }

Array bind_dot(Array a, Array b, const DotParams& params, SourceLine source) {
  return bind(dot_general_p, std::move(a), std::move(b), params, source);
}

Array dot_general(Operand a, Operand b, DotDimensionNumbers numbers) {
  promote(a, b, "dot_general");
  const SourceLine source = a.source;
  const auto dims = [&](const std::vector<int>& list, const Operand& x, const char* what) {
    try {
      return normalize_dims(Dims(list), type_of(x, "dot_general").rank(), what);
    } catch (const ValueError& e) {
      throw ValueError(e.what() + at_line(source));
    }
  };
  DotParams p;
  p.lhs_contracting =
      dims(numbers.contracting.first, a, "dot_general: contracting dims of the left operand");
  p.rhs_contracting =
      dims(numbers.contracting.second, b, "dot_general: contracting dims of the right operand");
  p.lhs_batch = dims(numbers.batch.first, a, "dot_general: batch dims of the left operand");
  p.rhs_batch = dims(numbers.batch.second, b, "dot_general: batch dims of the right operand");
  return bind_dot(std::move(a.value), std::move(b.value), p, a.source);
}

// NumPy's matmul: the last two dims are matrices, the others broadcast. A vector counts as a row on
// the left and as a column on the right; the result does not have that dim.
Array matmul(Operand a, Operand b) {
  const FunctionScope scope("matmul", {&a.value, &b.value}, a.source);
  promote(a, b, "matmul");
  const SourceLine source = a.source;
  const ShapedArray ta = type_of(a, "matmul"), tb = type_of(b, "matmul");
  if (ta.rank() == 0 || tb.rank() == 0) {
    throw ValueError("matmul: operands of types " + to_string(ta) + " and " + to_string(tb) +
                     ": a scalar is not a matrix: use a * b" + at_line(source));
  }
  const DotParams p = inner_dims(a, b, "matmul");
  if (ta.rank() > 2 || tb.rank() > 2) return batched_matmul(std::move(a), std::move(b));
  return bind_dot(std::move(a.value), std::move(b.value), p, source);
}

Array dot(Operand a, Operand b) {
  const FunctionScope scope("dot", {&a.value, &b.value}, a.source);
  promote(a, b, "dot");
  const ShapedArray ta = type_of(a, "dot"), tb = type_of(b, "dot");
  if (ta.rank() == 0 || tb.rank() == 0) {
    return bind_multiply(std::move(a.value), std::move(b.value), a.source);
  }
  const DotParams p = inner_dims(a, b, "dot");
  return bind_dot(std::move(a.value), std::move(b.value), p, a.source);
}

Array outer(Operand a, Operand b) {
  const FunctionScope scope("outer", {&a.value, &b.value}, a.source);
  promote(a, b, "outer");
  const SourceLine source = a.source;
  const std::int64_t m = type_of(a, "outer").size(), n = type_of(b, "outer").size();
  Array x = bind_reshape(std::move(a.value), Shape{m}, source),
        y = bind_reshape(std::move(b.value), Shape{n}, source);
  const Shape shape{m, n};
  x = bind_broadcast(std::move(x), shape, Dims(0), source);
  y = bind_broadcast(std::move(y), shape, Dims(1), source);
  return bind_multiply(std::move(x), std::move(y), source);
}

}  // namespace shmap
