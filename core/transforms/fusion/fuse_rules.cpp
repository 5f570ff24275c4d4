#include "core/transforms/fusion/fuse_rules.h"

#include <unordered_set>

#include "core/ops/elementwise.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/shape_params.h"

namespace shmap {

namespace {

// One thread reduces a row, which must fit into its caches.
constexpr std::int64_t kRowBytes = 256 * 1024;

// Splits a shape into rows and columns, where the dims in the bit mask `inner` are those of a row.
// False where another dim follows one of these (dims of extent 1 do not count).
bool split_shape(const Shape& shape, std::uint32_t inner, FuseSpace* out) {
  *out = FuseSpace();
  bool in_row = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    if (inner >> d & 1u) {
      in_row = true;
      out->cols *= shape[d];
    } else {
      if (in_row) return false;
      out->rows *= shape[d];
    }
  }
  return true;
}

}  // namespace

FuseRole fuse_role(const Eqn& e) {
  if (e.primitive == &random_bits_p)
    return e.in[0].is_literal() || e.out[0]->type.size() == 0 ? FuseRole::other : FuseRole::draw;
  if (e.out.size() != 1 || e.out[0]->type.dtype() == DType::prng_key) return FuseRole::other;
  bool any_var = false;
  for (const Atom& a : e.in) {
    any_var |= !a.is_literal();
    if (a.type().dtype() == DType::prng_key) return FuseRole::other;
  }
  if (!any_var) return FuseRole::other;
  if (e.primitive->elementwise_row != nullptr &&
      is_elementwise(*e.primitive, e.in[0].type().dtype(), e.out[0]->type.dtype()))
    return FuseRole::map;
  if (e.primitive->reduction) return FuseRole::reduce;
  if (e.primitive == &broadcast_in_dim_p) return FuseRole::broadcast;
  if (e.primitive == &reshape_p) return FuseRole::reshape;
  return FuseRole::other;
}

bool reduced_space(const Eqn& e, FuseSpace* out) {
  const ShapedArray& in = e.in[0].type();
  std::uint32_t inner = 0;
  for (std::int64_t d : params_as<ReduceParams>(*e.params).axes) inner |= 1u << d;
  return inner != 0 && split_shape(in.dims(), inner, out) &&
         out->cols * itemsize(in.dtype()) <= kRowBytes;
}

FuseSpace drawn_space(const Eqn& e) {
  const std::int64_t keys = e.in[0].type().size();
  return {keys, e.out[0]->type.size() / keys};
}

bool broadcast_kind(const Eqn& e, FusedKind* kind, FuseSpace* space) {
  const Shape &from = e.in[0].type().dims(), &to = e.out[0]->type.dims();
  const Dims& dims = params_as<BroadcastParams>(*e.params).dims;
  std::uint32_t carried = 0;
  for (std::size_t d = 0; d < from.size(); ++d) {
    const auto target = static_cast<std::size_t>(dims[d]);
    if (from[d] == to[target]) carried |= 1u << target;
  }
  bool any = false, all = true;
  for (std::size_t d = 0; d < to.size(); ++d) {
    if (to[d] == 1) continue;
    any |= carried >> d & 1u;
    all &= carried >> d & 1u;
  }
  *kind = all ? FusedKind::full : FusedKind::scalar;
  if (all || !any) return true;
  *kind = FusedKind::row;
  if (split_shape(to, ~carried, space)) return true;
  *kind = FusedKind::col;
  return split_shape(to, carried, space);
}

FusedKind fuse_operand_kind(const Eqn& e, FuseRole role, FusedKind kind, const Atom& a) {
  switch (role) {
    case FuseRole::reduce:
      return FusedKind::full;
    case FuseRole::broadcast: {
      FusedKind from = kind;
      FuseSpace space;
      broadcast_kind(e, &from, &space);
      return from == FusedKind::full ? kind : from;
    }
    case FuseRole::map:
      if (a.is_literal() || (a.type().rank() == 0 && e.out[0]->type.rank() != 0))
        return FusedKind::scalar;
      return kind;
    case FuseRole::draw:
      return a.is_literal() || a.type().size() == 1 ? FusedKind::scalar : FusedKind::row;
    default:
      return kind;
  }
}

}  // namespace shmap
