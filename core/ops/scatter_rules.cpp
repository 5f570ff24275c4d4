// Derivatives of scatter and its variants.
#include "core/ops/elementwise.h"
#include "core/ops/rule_ops.h"
#include "core/ops/rules.h"
#include "core/ops/scatter.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// The gather that reads the positions to which a scatter writes. Windows that the scatter drops
// give zeros, or the fill value if `fill`.
GatherParams gather_of(const ScatterAddParams& p, Types in, bool fill) {
  GatherParams back;
  back.offset_dims = p.update_window_dims;
  back.collapsed_slice_dims = p.inserted_window_dims;
  back.start_index_map = p.scatter_dims_to_operand_dims;
  back.operand_batching_dims = p.operand_batching_dims;
  back.start_indices_batching_dims = p.scatter_indices_batching_dims;
  back.mode = p.clip ? GatherMode::clip : fill ? GatherMode::fill : GatherMode::zero;
  const auto contains = [](const IntList& list, std::int64_t d) {
    for (std::int64_t e : list)
      if (e == d) return true;
    return false;
  };
  std::size_t window = 0;
  for (std::int64_t d = 0; d < in[0].rank(); ++d) {
    const bool is_window =
        !contains(p.inserted_window_dims, d) && !contains(p.operand_batching_dims, d);
    back.slice_sizes.push_back(
        is_window ? in[2].dims()[static_cast<std::size_t>(p.update_window_dims[window++])] : 1);
  }
  return back;
}

Array scatter(const Primitive& primitive, Array operand, const Array& indices, Array updates,
              const Params& params, SourceLine source) {
  Array in[] = {std::move(operand), indices, std::move(updates)};
  return bind(primitive, in, params, source);
}

// Helpers for the rules of mul, min and max.
struct Combining {
  explicit Combining(JvpCall& call)
      : call(call),
        op(call.source),
        types{call.type(0), call.type(1), call.type(2)},
        params(params_as<ScatterAddParams>(call.params)),
        x(call.primals[0]),
        y(call.primals[2]) {}

  Array zeros(std::size_t operand) const { return zeros_of(types[operand], call.source); }
  Array into(const Primitive& primitive, const Array& operand, const Array& updates) const {
    return scatter(primitive, operand, call.primals[1], updates, params, call.source);
  }
  // Reads, for each update, the element at the update's position of an array of the operand's
  // shape.
  Array met(const Array& in) const {
    return bind(gather_p, in, call.primals[1], gather_of(params, types, /*fill=*/false),
                call.source);
  }
  Array number(const Array& mask, const Array& like) const {
    const Array ones = op.to_shape(op.number(1, like), like.shape());
    return op.select(mask, ones, op.to_shape(op.number(0, like), like.shape()));
  }

  JvpCall& call;
  RuleOps op;
  ShapedArray types[3];
  const ScatterAddParams& params;
  const Array &x, &y;
};

}  // namespace

// The result is linear in operand and updates together: of several updates for one position, the
// scatter of tangents keeps the same one as the scatter of primals.
void jvp_scatter_linear(JvpCall& call) {
  call.run();
  call.tangents_out[0] = scatter(
      call.primitive, or_zeros(call.tangents[0], call.type(0), call.source), call.primals[1],
      or_zeros(call.tangents[2], call.type(2), call.source), call.params, call.source);
}

// The operand's cotangent is the result's; an update's cotangent is read at its position.
void transpose_scatter_add(TransposeCall& call) {
  if (call.is_linear(0)) call.out[0] = call.cotangents[0];
  if (!call.is_linear(2)) return;
  const auto& p = params_as<ScatterAddParams>(call.params);
  call.out[2] = bind(gather_p, call.cotangents[0], call.in[1],
                     gather_of(p, call.in_types, /*fill=*/false), call.source);
}

// The operand's cotangent is the result's, with zeros at the positions that were set. An update's
// cotangent is read at its position if it was the last update there; otherwise it is zero.
void transpose_scatter_set(TransposeCall& call) {
  const auto& p = params_as<ScatterAddParams>(call.params);
  const SourceLine source = call.source;
  const Array& ct = call.cotangents[0];
  if (call.is_linear(0)) {
    call.out[0] = scatter(scatter_p, ct, call.in[1], zeros_of(call.in_types[2], source), p, source);
  }
  if (!call.is_linear(2)) return;
  const RuleOps op(source);
  const Shape shape = call.in_types[2].dims();
  const DType dtype = call.in_types[2].size() > INT32_MAX ? DType::i64 : DType::i32;
  const Array numbers =
      bind_reshape(bind_iota(dtype, {call.in_types[2].size()}, 0, source), shape, source);
  const Array nobody =
      broadcast_exactly(scalar_of(dtype, -1, source), call.in_types[0].dims(), "scatter", source);
  const Array last = scatter(scatter_p, nobody, call.in[1], numbers, p, source);
  const Array met =
      bind(gather_p, last, call.in[1], gather_of(p, call.in_types, /*fill=*/true), source);
  const Array back =
      bind(gather_p, ct, call.in[1], gather_of(p, call.in_types, /*fill=*/false), source);
  call.out[2] = op.select(op(eq_p, met, numbers), back, zeros_of(call.in_types[2], source));
}

void jvp_scatter_mul(JvpCall& call) {
  call.run();
  const Combining c(call);
  const RuleOps& op = c.op;
  Array tangent;
  if (call.has_tangent(0)) {
    const Array factors = c.into(scatter_mul_p, op.to_shape(op.number(1, c.x), c.x.shape()), c.y);
    tangent = op(mul_p, call.tangents[0], factors);
  }
  if (call.has_tangent(2)) {
    // The factor of the tangent is the product of all other factors, computed by division. If this
    // factor is zero, the product is that of the nonzero factors if this is the only zero,
    // otherwise zero.
    const Array is_zero = op(eq_p, c.y, op.number(0, c.y));
    const Array one = op.number(1, c.y);
    const Array factors = op.select(is_zero, op.to_shape(one, c.y.shape()), c.y);
    const Array zeros = c.into(scatter_add_p, c.zeros(0), c.number(is_zero, c.y));
    const Array others = c.into(scatter_mul_p, c.x, factors);
    const Array only = op(eq_p, c.met(zeros), one);
    const Array of_zero = op.select(only, c.met(others), c.zeros(2));
    const Array rest = op.select(is_zero, of_zero, op(div_p, c.met(call.out[0]), factors));
    const Array sums = c.into(scatter_add_p, c.zeros(0), op(mul_p, call.tangents[2], rest));
    tangent = add_tangents(tangent, sums, call.source);
  }
  call.tangents_out[0] = tangent;
}

void jvp_scatter_extremum(JvpCall& call) {
  call.run();
  const Combining c(call);
  const RuleOps& op = c.op;
  const Array x_wins = c.number(op(eq_p, c.x, call.out[0]), c.x);
  const Array y_wins = c.number(op(eq_p, c.y, c.met(call.out[0])), c.y);
  const Array count = c.into(scatter_add_p, x_wins, y_wins);
  const Array from_x = call.has_tangent(0) ? op(mul_p, call.tangents[0], x_wins) : c.zeros(0);
  const Array from_y = call.has_tangent(2) ? op(mul_p, call.tangents[2], y_wins) : c.zeros(2);
  call.tangents_out[0] = op(div_p, c.into(scatter_add_p, from_x, from_y), count);
}

}  // namespace shmap
